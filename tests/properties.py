"""Hypothesis as it is used here. Not in conftest.py: most runs of pytest (one per mutant) do without, and it is slow to import.

The same examples in every run, and no stop-watch: a loaded machine must not turn a property red.
"""

from hypothesis import example, given, settings
from hypothesis import strategies as st

settings.register_profile("holdfast", deadline=None, derandomize=True)
settings.load_profile("holdfast")

__all__ = ["example", "given", "settings", "st"]
