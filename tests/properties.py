"""Hypothesis as it is used here. Not in conftest.py: most runs of pytest (one per mutant) do without, and it is slow to import.

The same examples in every run, and no stop-watch: a loaded machine must not turn a property red. `HOLDFAST_EXAMPLES` (make soak)
asks for so many times as many, and for other ones in every run.
"""

import os

from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

TIMES = int(os.environ.get("HOLDFAST_EXAMPLES", "1"))

settings.register_profile(
    "holdfast",
    deadline=None,
    derandomize=TIMES == 1,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("holdfast")


def examples(short: int) -> settings:
    """So many in `make test`."""
    return settings(max_examples=short * TIMES)


__all__ = ["TIMES", "Phase", "example", "examples", "given", "settings", "st"]
