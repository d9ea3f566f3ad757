"""Every example in a docstring runs as written."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import holdfast

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(holdfast.__path__, "holdfast.")
    if not module.name.endswith("__main__") and ".contrib.django." not in module.name  # which wants settings
)


def test_every_example_in_a_docstring_runs() -> None:
    tried = 0
    for name in ["holdfast", *MODULES]:
        # Not docstrings without an example: for each of those too, every source file known to this process would be looked at.
        module = importlib.import_module(name)
        result = doctest.testmod(module, optionflags=doctest.ELLIPSIS, exclude_empty=True)
        assert result.failed == 0, name
        tried += result.attempted
    assert tried > 8
