"""The real client of Redis, from the engine down to its bytes, over simulated streams that delay, split and cut."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from holdfast.drivers.simulated_streams import ROUGH_STREAMS, StreamFaults
from holdfast.stores.redis import open_store

from . import over_streams
from .over_streams import LATE, Outcome, Service
from .scripted_redis import ScriptedRedis
from .test_redis_mutants import answers_of_others

REDIS = Service("redis://redis", open_store, lambda process, streams: ScriptedRedis(process, streams, ("redis", 6379)))


def contend(seed: int, faults: StreamFaults, flushed: bool = False) -> tuple[Outcome, ScriptedRedis]:
    return over_streams.contend(REDIS, seed, faults, while_inside=ScriptedRedis.forget_scripts if flushed else id)


@pytest.mark.parametrize("flushed", [False, True], ids=["", "scripts are forgotten"])
def test_clients_take_turns_over_calm_streams_and_every_token_is_greater_than_the_last(flushed: bool) -> None:
    found, redis = contend(1, StreamFaults(), flushed)
    assert len(found.tokens) == 12
    assert found.is_right()
    assert not any(name.inside or name.line for name in redis.names.values())


@pytest.mark.parametrize("seed", range(12))
def test_bytes_that_are_late_split_or_cut_off_let_no_two_in(seed: int) -> None:
    found, _ = contend(seed, ROUGH_STREAMS, flushed=seed % 2 == 0)
    assert found.is_right()


def test_rough_streams_do_cut_connections() -> None:
    assert sum(contend(seed, ROUGH_STREAMS)[0].cuts for seed in range(3)) > 5


def test_the_same_seed_gives_the_same_run() -> None:
    (one, _), (again, _), (other, _) = (contend(seed, ROUGH_STREAMS) for seed in (7, 7, 8))
    assert one == again
    assert one != other


def test_a_connection_that_was_cut_while_it_lay_idle_is_replaced() -> None:
    over_streams.a_connection_that_was_cut_while_it_lay_idle_is_replaced(REDIS, 3)  # renewals have one of their own


@pytest.mark.parametrize("mistaken", [False, True], ids=["as it is", "with the mistake"])
def test_a_connection_whose_answer_is_still_to_come_is_not_used_again(mistaken: bool) -> None:
    """The mistake of redis-py, CVE-2023-28859: the next to ask is given the answer to another question."""
    with answers_of_others() if mistaken else nullcontext():
        found = [contend(seed, LATE)[0] for seed in range(6)]
    assert all(one.is_right() for one in found) is not mistaken
