"""A real PostgreSQL passes the suite with locks that live with a connection, but for what they do not give.

As a role that has what `holdfast migrate --acl` prints, no more.
A file of its own, so that it can run beside that of the lease table.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.testing import servers
from holdfast.testing.conformance import Suite, World
from holdfast.testing.conformance.answers import FAULTS
from holdfast.testing.network import Network
from holdfast.testing.servers.postgresql import PostgreSQL

from ..tenants import on_postgresql

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def postgresql() -> Iterator[PostgreSQL]:
    # What a power cut does is not asked here; a session lock is a connection, and there is a test with a hundred of them.
    with servers.start("postgresql", "-c", "fsync=off", "-c", "max_connections=200") as server:
        on_postgresql(server, tenant(server), "tenant")
        yield server


def tenant(server: PostgreSQL) -> str:
    return f"postgresql://tenant@127.0.0.1:{server.port}/postgres?create=no&mode=session"


# What session locks do not give, and say so: see "What it does not give" in docs/postgresql.md.
EXCEPTIONS = {
    "test_only_the_holder_of_that_token_is_put_out": "a semaphore",
    "test_there_is_never_more_inside_than_the_capacity": "a semaphore",
    "test_as_many_get_in_together_as_there_are_units": "a semaphore",
    "test_a_big_claim_at_the_head_is_not_starved_by_small_ones": "a semaphore",
    "test_one_release_of_many_units_lets_many_in": "a semaphore",
    "test_units_of_one_semaphore_have_tokens_of_their_own": "a semaphore",
    "test_those_inside_and_those_in_line_are_seen_with_plausible_times": "a semaphore",
    "test_a_name_refuses_a_claim_that_disagrees_on_its_capacity": "a semaphore; and a mutex excludes readers and writers alike",
    "test_the_fair_do_not_pass_the_line_and_the_unfair_do": "PostgreSQL's own line knows no passing",
    "test_a_dead_waiter_is_not_let_in_behind_our_backs": "the server lets it in; its ttl, kept on both sides, ends that",
}


class TestPostgreSQLSessions(Suite):
    doubts = False  # a lock lives with its connection
    tells_ttl = False
    lines_at_a_time = 7
    turns_at_a_time = 2
    ttl_short = 0.6  # the first lock opens two connections, which on a busy machine takes a while

    @pytest.fixture
    def url(self, postgresql: PostgreSQL) -> str:
        postgresql.query("TRUNCATE holdfast.locks")
        return tenant(postgresql)

    @pytest.mark.parametrize("what", ["a lock", "a downgrade"])  # the others are several of these
    def test_cancelled_at_any_await_nothing_is_left(self, world: World, what: str) -> None:
        super().test_cancelled_at_any_await_nothing_is_left(world, what)

    # A lock, and a place in line, end with their connection: what cuts it is told as a loss, at once. What is late loses nothing,
    # and who had neither a lock nor a place yet comes in all the same. (Where the answer is dropped, the cut comes so late that
    # it may have the lock.)

    @pytest.mark.parametrize(
        ("free", "fault"), [(True, "answer late"), *((False, fault) for fault in FAULTS if fault != "answer dropped")]
    )
    def test_a_claim_struck_at_any_request_enters_once_and_in_its_turn(
        self, world: World, network: Network, fault: str, free: bool
    ) -> None:
        super().test_a_claim_struck_at_any_request_enters_once_and_in_its_turn(world, network, fault, free)

    @pytest.mark.parametrize("fault", ["answer late"])
    def test_a_waiter_struck_at_any_request_is_let_in_in_its_turn(
        self, world: World, network: Network, fault: str
    ) -> None:
        super().test_a_waiter_struck_at_any_request_is_let_in_in_its_turn(world, network, fault)

    @pytest.mark.parametrize("fault", ["answer late"])
    def test_a_renewal_struck_at_any_request_loses_nothing(self, world: World, network: Network, fault: str) -> None:
        super().test_a_renewal_struck_at_any_request_loses_nothing(world, network, fault)


for _name in EXCEPTIONS:
    assert hasattr(Suite, _name)
    setattr(TestPostgreSQLSessions, _name, None)
