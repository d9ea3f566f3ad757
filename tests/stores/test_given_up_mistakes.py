"""Requests that are not taken back from the system: the tests that are meant to find it do."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.drivers import sockets, transports
from holdfast.stores.mysql import connection as of_mysql
from holdfast.stores.mysql import connection_aio as of_mysql_in_asyncio
from holdfast.stores.postgresql import connection as of_postgresql
from holdfast.stores.redis import connection as of_redis
from holdfast.stores.redis import pipe
from holdfast.testing import servers

from . import test_given_up as given_up

pytestmark = pytest.mark.server


@pytest.mark.parametrize("kind", given_up.KINDS)
def test_found_a_claim_that_the_system_goes_on_sending(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for where in (sockets, transports, of_mysql, of_mysql_in_asyncio, of_postgresql, of_redis, pipe):
        monkeypatch.setattr(where, "take_back", lambda number: None)
    with servers.start(kind) as server:
        with given_up.Way(server.address) as way, pytest.raises(AssertionError, match="still has the claim"):
            given_up.test_in_threads(server, way)
        with given_up.Way(server.address) as way, pytest.raises(AssertionError, match="still has the claim"):
            given_up.test_in_a_loop(server, way, asyncio.new_event_loop)
