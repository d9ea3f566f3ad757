"""Settings of the server do not change what we mean."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.claim import Grant, Place

from .admin import Admin
from .worlds import WORLDS, claim, run

pytestmark = pytest.mark.server


@pytest.mark.parametrize(
    "setting",
    [
        "autocommit = 0",
        "completion_type = 'CHAIN'",
        "completion_type = 'RELEASE'",
        "sql_safe_updates = 1",
        "sql_select_limit = 0",
        "max_join_size = 1",
        "sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH'",
        "tx_isolation = 'SERIALIZABLE'",
        "time_zone = '+13:00'",
    ],
)
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("mode", ["", "?mode=session"])
def test_settings_of_the_server_do_not_change_what_we_mean(
    world: str, mode: str, setting: str, url: str, admin: Admin
) -> None:
    name = setting.split()[0]
    ((before,),) = admin.run(f"SELECT @@GLOBAL.{name}")

    async def scenario(store: Any) -> None:
        first = await store.claim(claim())
        assert isinstance(first, Grant)
        assert isinstance(await store.claim(claim(queue=False)), Place)
        assert list(await store.renew([first], 10.0)) == [first]
        assert await store.names() == ["x"]
        assert await store.release(first.claim)
        second = await store.claim(claim())
        assert isinstance(second, Grant)
        assert second.token > first.token
        assert await store.evict("x", second.token, "somebody")
        assert await store.names() == []

    admin.run(f"SET GLOBAL {setting}")
    try:
        run(world, url + mode, scenario)
    finally:
        admin.run(f"SET GLOBAL {name} = {before!r}")
