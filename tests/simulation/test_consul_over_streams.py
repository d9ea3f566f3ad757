"""The real client of Consul, from the engine down to its bytes, over simulated streams that delay, split and cut."""

from __future__ import annotations

import pytest

from holdfast.drivers.simulated_streams import ROUGH_STREAMS, SimulatedStream, StreamFaults
from holdfast.errors import Misuse
from holdfast.stores.consul import open_store
from holdfast.stores.kit.pool import Loan, Pool

from . import over_streams
from .over_streams import LATE, Outcome, Service
from .scripted_consul import ScriptedConsul

CONSUL = Service(
    "consul://consul", open_store, lambda process, streams: ScriptedConsul(process, streams, ("consul", 8500))
)


def contend(seed: int, faults: StreamFaults) -> Outcome:
    found, _ = over_streams.contend(CONSUL, seed, faults)
    return found


def test_clients_take_turns_over_calm_streams_and_every_token_is_greater_than_the_last() -> None:
    found = contend(1, StreamFaults())
    assert len(found.tokens) == 12
    assert found.is_right()


@pytest.mark.parametrize("seed", range(12))
def test_bytes_that_are_late_split_or_cut_off_let_no_two_in(seed: int) -> None:
    assert contend(seed, ROUGH_STREAMS).is_right()


def test_rough_streams_do_cut_connections() -> None:
    assert sum(contend(seed, ROUGH_STREAMS).cuts for seed in range(3)) > 5


def test_the_same_seed_gives_the_same_run() -> None:
    assert contend(7, ROUGH_STREAMS) == contend(7, ROUGH_STREAMS)
    assert contend(7, ROUGH_STREAMS) != contend(8, ROUGH_STREAMS)


def test_a_connection_that_was_cut_while_it_lay_idle_is_replaced() -> None:
    over_streams.a_connection_that_was_cut_while_it_lay_idle_is_replaced(CONSUL)


def test_a_silent_host_is_passed_over_in_time() -> None:
    over_streams.a_silent_host_is_passed_over_in_time(CONSUL, ("silent", 8500), "consul://silent,consul")


def test_a_holder_that_crashed_is_replaced_when_its_session_ends() -> None:
    consul = over_streams.a_crashed_holder_is_replaced(CONSUL, 5)
    assert len(consul.sessions) == 1


@pytest.mark.parametrize("mistaken", [False, True], ids=["as it is", "with the mistake"])
def test_a_connection_whose_answer_is_still_to_come_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch, mistaken: bool
) -> None:
    """The mistake of redis-py, CVE-2023-28859: the next to ask is given the answer to another question."""
    plain = Pool.take_back

    def always_whole(self: Pool, loan: Loan, *, whole: bool) -> None:
        plain(self, loan, whole=True)

    if mistaken:
        monkeypatch.setattr(Pool, "take_back", always_whole)
        monkeypatch.setattr(SimulatedStream, "is_stale", lambda self: False)

    def is_right(seed: int) -> bool:
        try:
            return contend(seed, LATE).is_right()
        except Misuse:
            return False  # "the key … is not holdfast's": it was the answer to another question

    assert all(map(is_right, range(30))) is not mistaken
