"""What was connected in an event loop that is over: each of these mistakes was once ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from .spoiling import Mutant, must_be_clean, must_be_found

NEXT = "test_what_was_connected_in_a_loop_that_is_over_goes_on_in_the_next"
REDIS = f"tests/conformance/test_redis.py::TestRedis::{NEXT}"
POSTGRESQL = f"tests/conformance/test_postgresql.py::TestPostgreSQL::{NEXT}[asyncio]"
SESSIONS = f"tests/conformance/test_postgresql_sessions.py::TestPostgreSQLSessions::{NEXT}[asyncio]"
STAYS = "self.loop.create_future()\n        if not self.open:"

MUTANTS = [
    Mutant(
        "the number of a socket is used that uvloop has closed with itself",
        "drivers/transports.py",
        (
            (
                "self._plain = plain  #",
                "self._plain: Any = type('', (), {'fileno': lambda _, n=plain.fileno(): n})()  #",
            ),
        ),
        f"tests/conformance/test_etcd.py::TestEtcd::{NEXT}[uvloop]",
    ),
    Mutant(
        "Redis: an ear in a loop that is over is thought to listen",
        "stores/redis/ear_aio.py",
        ((" and not self._pipe.loop.is_closed()", ""),),
        f"{REDIS}[asyncio]",
    ),
    Mutant(
        "Redis: what a loop that is over has left cannot be closed",
        "stores/redis/pipe.py",
        (("        if self.loop.is_closed():  # nobody", "        if False:  # nobody"),),
        f"{REDIS}[asyncio]",
    ),
    Mutant(
        "Redis: who dials waits in a loop that is over",
        "stores/ears_aio.py",
        (("        if self._loop is not loop:\n", "        if self._loop is None:\n"),),
        f"{REDIS}[asyncio]",
    ),
    Mutant(
        "PostgreSQL: an ear in a loop that is over is thought to listen",
        "stores/postgresql/ear_aio.py",
        ((" and not lane.loop.is_closed()", ""),),
        POSTGRESQL,
    ),
    Mutant(
        "PostgreSQL: a session lock of a loop that is over cannot be released",
        "stores/postgresql/lane.py",
        (("asyncio.get_running_loop().create_future()\n        if self.is_stale():", STAYS),),
        SESSIONS,
    ),
]


@pytest.mark.timeout(600)
def test_without_a_mistake_nothing_is_found(source: Path) -> None:
    must_be_clean(MUTANTS, source)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("mutant", [pytest.param(mutant, id=mutant.what) for mutant in MUTANTS])
def test_a_mistake_is_found(mutant: Mutant, source: Path) -> None:
    must_be_found(mutant, source)
