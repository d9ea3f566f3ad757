"""Mistakes in `also=` that the tests of this folder must find."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from holdfast.stores.also import both, errands, nodes, redis_keys

from . import test_also
from .conftest import of
from .rivals import Format

pytestmark = pytest.mark.server

MISTAKES = {
    "the old lock is not asked for": (
        both,
        "lives = await self._old.take(claim, self._left(until))",
        "lives = claim.ttl",
        "redis-py",
        test_also.test_while_we_are_inside_old_code_is_not_and_the_other_way_round,
    ),
    "who does not wait stays in the new store": (
        both,
        "await self._new.release(claim, self._left(until))\n        elif",
        "pass\n        elif",
        "redis-py",
        test_also.test_who_does_not_wait_leaves_nothing_behind,
    ),
    "a lost old lock is no loss": (
        both,
        "if lives else None",
        "if lives else grant",
        "redis-py",
        test_also.test_a_lease_is_lost_with_the_old_lock,
    ),
    "the old lock is not renewed": (
        redis_keys,
        "replies = await self._wire.ask_apart(asked, within)",
        "replies = [1 for _ in asked]",
        "redis-py",
        test_also.test_both_are_renewed,
    ),
    "the old lock is not given back": (
        both,
        "await self._old.give_back(claim, within / 2)",
        "pass",
        "redis-py",
        test_also.test_while_we_are_inside_old_code_is_not_and_the_other_way_round,
    ),
    "whoever asks takes what is another's": (
        redis_keys,
        "'NX', 'PX'",
        "'PX'",
        "redis-py",
        test_also.test_while_we_are_inside_old_code_is_not_and_the_other_way_round,
    ),
    "what lives with a connection lives for ever": (
        errands,
        "self._let_go(holder)",
        "pass",
        "kazoo",
        test_also.test_what_is_left_to_end_ends_in_the_old_one_too,
    ),
    "Curator does not know our nodes": (
        nodes,
        '{sign[20:]}-lock-"',
        '{sign[20:]}__lock__"',
        "curator",
        test_also.test_while_we_are_inside_old_code_is_not_and_the_other_way_round,
    ),
}


def spoil(monkeypatch: pytest.MonkeyPatch, module: ModuleType, old: str, new: str) -> None:
    """Whoever uses what the module defines uses it with the mistake, for as long as the test takes."""
    text = inspect.getsource(module)
    assert text.count(old) == 1, f"the source has changed: {old!r}"
    spoilt = dict(module.__dict__)
    exec(compile(text.replace(old, new), str(module.__file__), "exec"), spoilt)  # noqa: S102 our own source
    for name, value in vars(module).items():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        for user in [one for key, one in sys.modules.items() if key.startswith("holdfast.stores.also")]:
            if getattr(user, name, None) is value:
                monkeypatch.setattr(user, name, spoilt[name])


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_found(what: str, server: Callable[[str], Any], url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, old, new, whose, test = MISTAKES[what]
    form: Format = of(whose, server)
    rival = form.rival()
    monkeypatch.setattr(test_also, "DEADLINE", 8.0)
    spoil(monkeypatch, module, old, new)
    try:
        with pytest.raises(BaseException) as found:  # noqa: PT011 an assertion, or whatever the mistake led to
            test(form, rival, url)
        assert not isinstance(found.value, KeyboardInterrupt | SystemExit | TypeError | NameError), found.value
    finally:
        rival.rob()
        rival.close()
