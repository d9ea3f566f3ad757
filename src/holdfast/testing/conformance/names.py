"""Any text is a name, and nothing but that text is."""

from __future__ import annotations

import unicodedata

import pytest

from .world import World

ODD = [
    "x",
    " x",
    "x ",
    "X",
    "x\n",
    "x\ty",
    "a/../b",
    "/",
    "//x",
    ".",
    "..",
    "%",
    "%s %d %00",
    "*",
    "?[a-z]",
    "{a}",
    "{0}",
    "}{",
    "'",
    '"',
    "`$(x)`",
    "'; DROP TABLE locks; --",
    "a\\b",
    "a:b:c",
    "\r\nDEL x\r\n",
    "\x01\x7f",
    "ÿ",
    "ß",
    "SS",
    "İ",
    "\u0131",  # a small i without its dot
    unicodedata.normalize("NFC", "é"),
    unicodedata.normalize("NFD", "é"),
    "\u212b",  # the Ångström sign,
    "\u00c5",  # which normalises to this letter
    "א\u202eב",
    "日本語",
    "🔒",
    "👩\u200d👩\u200d👧",
    "\ufeffx",
    "\U0010ffff",
    "x" * 512,
    "y" * 511,
    "日" * 170 + "ab",
    "🔒" * 128,
    "x" * 511 + "y",
]


@pytest.mark.filterwarnings("ignore:a name like .* is taken as it is")  # some look like templates
class Names:
    def test_odd_names_are_names_and_each_is_its_own(self, world: World) -> None:
        a, b = world.actors("a", "b")
        leases = {}
        for name in ODD:
            leases[name] = a.do(lambda locks, name=name: locks.lock(name).try_acquire())
            assert leases[name] is not None, f"{name!r} was taken already"
        assert set(world.names()) == set(ODD)
        for name, lease in leases.items():
            assert lease.name == name
            assert b.do(lambda locks, name=name: locks.lock(name).try_acquire()) is None
            snapshot = world.inspect(name)
            assert snapshot.name == name
            assert [one.token for one in snapshot.holders] == [lease.token]
        for lease in leases.values():
            assert a.do(lambda _, lease=lease: lease.release()) is True
        world.until_nothing_is_left()

    def test_an_odd_name_is_waited_for_handed_over_and_put_out_like_any(self, world: World) -> None:
        a, b = world.actors("a", "b")
        for name in ("a/../b {x} %s *", "🔒'\"\n", "日" * 170):
            lease = a.do(lambda locks, name=name: locks.lock(name).acquire(timeout=5))
            waiting = b.start(lambda locks, name=name: locks.lock(name).acquire(timeout=30))
            world.until_waiting(name, "b")
            a.do(lambda _, lease=lease: lease.release())
            taken = waiting.result(5 + world.slack)
            assert world.names(name[:2]) == [name]
            assert world.looker.do(lambda locks, n=name, t=taken.token: locks.force_release(n, token=t)) > taken.token
            eviction = world.inspect(name).eviction
            assert eviction is not None
            assert eviction.evicted_token == taken.token

    def test_an_election_tells_any_printable_address(self, world: World) -> None:
        a = world.actor("a")
        for number, address in enumerate(("", "http://[::1]:80/?a=b&c={d}", "é日🔒'\"%", "x" * 1024)):
            name = f"boss{number}"
            a.do(lambda locks, n=name, at=address: locks.election(n, address=at).lead().acquire(timeout=5))
            leader = world.looker.do(lambda locks, n=name: locks.election(n).leader())
            assert leader.address == address
