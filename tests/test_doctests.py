"""Every example in a docstring runs as written; those of asyncio in a loop, as in `python -m asyncio`."""

from __future__ import annotations

import ast
import asyncio
import doctest
import importlib
import inspect
import io
import pkgutil
from contextlib import redirect_stdout
from typing import Any

import holdfast
from holdfast import aio

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(holdfast.__path__, "holdfast.")
    if not module.name.endswith("__main__") and ".contrib.django." not in module.name  # which wants settings
)


def test_every_example_in_a_docstring_runs() -> None:
    tried = 0
    for name in ["holdfast", *MODULES]:
        if name == aio.__name__:
            continue
        # Not docstrings without an example: for each of those too, every source file known to this process would be looked at.
        module = importlib.import_module(name)
        with holdfast.connect(f"memory://examples of {name}") as locks:
            result = doctest.testmod(
                module, optionflags=doctest.ELLIPSIS, exclude_empty=True, extraglobs={"locks": locks}
            )
        assert result.failed == 0, name
        tried += result.attempted
    assert tried > 40


def test_every_example_of_asyncio_runs() -> None:
    found = [test for test in doctest.DocTestFinder(exclude_empty=True).find(aio) if test.examples]
    assert sum(len(test.examples) for test in found) > 40
    for test in found:
        if test.name == aio.__name__:  # a whole program, with a loop of its own
            assert doctest.DocTestRunner().run(test).failed == 0
        else:
            asyncio.run(as_in_a_console(test))


async def as_in_a_console(test: doctest.DocTest) -> None:
    async with aio.connect(f"memory://examples of {test.name}") as locks:
        world: dict[str, Any] = {**vars(aio), "locks": locks}
        for example in test.examples:
            code = compile(example.source, test.name, "single", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            with redirect_stdout(io.StringIO()) as printed:
                result = eval(code, world)
                if inspect.iscoroutine(result):
                    await result
            assert doctest.OutputChecker().check_output(example.want, printed.getvalue(), 0), (
                f"{test.name}: {example.source} printed {printed.getvalue()}"
            )
