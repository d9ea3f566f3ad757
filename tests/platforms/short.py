"""A short form of the conformance suite, run by test_platforms.py where `without.py` has been before."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from uuid import uuid4

import pytest

from holdfast.testing.conformance import Suite

WITHOUT = {"darwin": "CLOCK_BOOTTIME", "win32": "clock_gettime"}


def test_it_is_gone() -> None:
    assert not hasattr(time, WITHOUT[sys.platform])


class Short:
    """What excludes, in which order, with which tokens; in line, after an expiry, and seen by others."""

    ttl_short = Suite.ttl_short
    tells_ttl = Suite.tells_ttl
    slack = 5.0
    network = Suite.network
    world = Suite.world

    test_while_one_is_inside = Suite.test_while_one_is_inside_another_is_refused_and_then_gets_in
    test_the_line_is_served_in_the_order_of_arrival = Suite.test_the_line_is_served_in_the_order_of_arrival
    test_a_bell_before_the_wait_is_not_missed = Suite.test_a_bell_before_the_wait_is_not_missed
    test_every_grant_outranks_all_before = Suite.test_every_grant_outranks_all_before
    test_a_grant_after_an_expiry_outranks_the_expired_one = Suite.test_a_grant_after_an_expiry_outranks_the_expired_one
    test_a_claim_that_is_inside_may_be_repeated = Suite.test_a_claim_that_is_inside_may_be_repeated_and_keeps_its_token
    test_a_renewal_after_the_end_is_refused = Suite.test_a_renewal_after_the_end_is_refused_and_revives_nothing
    test_a_release_that_arrives_too_late = Suite.test_a_release_that_arrives_too_late_leaves_the_successor_alone
    test_those_inside_and_those_in_line_are_seen = (
        Suite.test_those_inside_and_those_in_line_are_seen_with_plausible_times
    )


class TestMemory(Short):
    @pytest.fixture
    def url(self) -> str:
        return f"memory://{uuid4().hex}"


class TestSqlite(Short):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite://{tmp_path}/locks.db"


class TestRedis(Short):
    @pytest.fixture
    def url(self) -> str:
        return f"{os.environ['PLATFORM_REDIS']}?prefix={uuid4().hex[:8]}"
