"""A name is a name in every store: two are never one, and none reaches out of its prefix, whatever it is made of."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest

import holdfast
from holdfast.claim import Claim, Grant, new_holder, valid_name
from holdfast.drivers.simulated import Process
from holdfast.drivers.simulated_streams import Streams
from holdfast.drivers.world import World
from holdfast.stores.consul import open_store as open_consul
from holdfast.stores.consul.keys import Keys as ConsulKeys
from holdfast.stores.consul.keys import url_of
from holdfast.stores.etcd.keys import Keys as EtcdKeys
from holdfast.stores.etcd.keys import everybody
from holdfast.stores.mysql.store import literal
from holdfast.stores.redis.keys import NameKeys, name_of, state_key
from holdfast.stores.redis.scanning import pattern_of
from holdfast.stores.zookeeper import line as zookeeper
from holdfast.testing import servers

from ..properties import example, examples, given, st
from ..simulation.scripted_consul import ScriptedConsul

# Letters that mean something somewhere come often, and so do names that are nearly the same.
SPECIAL = [
    *"/.%:{}*?[]\\'\"`;$@~!, -_\r\n\t\x01\x7faAbé",
    "..",
    "%2F",
    "e\u0301",
    "ß",
    "İ",
    "🔒",
    "\ufeff",
    "\uffff",
]
names = st.one_of(
    st.lists(st.sampled_from(SPECIAL), min_size=1, max_size=6).map("".join),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=30),
    st.sampled_from(
        ["locks", "sessions", "evictions", "@in", "@in/x", "alive", "hf:{x}", "x:entries", "zookeeper", "x" * 512]
    ),
)
prefixes = st.text("abAB_.:-", min_size=1, max_size=6)
CLAIM = Claim("", new_holder(), "me", 20.0)
pytestmark = pytest.mark.filterwarnings("ignore:a name like:UserWarning")  # with braces: taken as it is


def redis_keys(prefix: str, name: str) -> list[bytes]:
    packed = NameKeys(prefix.encode()).bare(name, 5)
    found = []
    while packed:
        size, _, rest = packed[1:].partition(b"\r\n")
        found.append(rest[: int(size)])
        packed = rest[int(size) + 2 :]
    return found


def etcd_keys(prefix: str, name: str) -> list[bytes]:
    keys, claim = EtcdKeys(prefix), CLAIM._replace(name=name)
    return [*keys.anywhere(claim), keys.in_line(claim), keys.left(claim), keys.evicted(name)]


def consul_keys(prefix: str, name: str) -> list[bytes]:
    keys = ConsulKeys(prefix)
    return [keys.book(name).encode(), keys.eviction(name).encode()]


def zookeeper_keys(prefix: str, name: str) -> list[bytes]:
    return [
        f"/{prefix}/locks/{zookeeper.encode(name)}".encode(),
        f"/{prefix}/evictions/{zookeeper.encode(name)}".encode(),
    ]


KEYS: dict[str, tuple[Callable[[str, str], list[bytes]], Callable[[str], bytes]]] = {
    "redis": (redis_keys, lambda prefix: b"%b:{" % prefix.encode()),
    "redlock": (
        lambda prefix, name: redis_keys(f"{prefix}:redlock", name),
        lambda prefix: b"%b:redlock:{" % prefix.encode(),
    ),
    "etcd": (etcd_keys, lambda prefix: f"{prefix}/@".encode()),
    "consul": (consul_keys, lambda prefix: f"{prefix}/".encode()),
    "zookeeper": (zookeeper_keys, lambda prefix: f"/{prefix}/".encode()),
}


@pytest.mark.parametrize("kind", KEYS)
@examples(20)
@given(one=names, other=names, prefix=prefixes)
@example(one="a", other="a:entries", prefix="hf")
@example(one="..", other=".", prefix="hf")
@example(one="a/b", other="a%2Fb", prefix="hf")
def test_two_names_share_no_key_and_all_keys_begin_with_the_prefix(
    kind: str, one: str, other: str, prefix: str
) -> None:
    keys, root = KEYS[kind]
    mine = keys(prefix, valid_name(one))
    assert len(set(mine)) == len(mine)
    assert all(key.startswith(root(prefix)) for key in mine)
    assert all(key.count(b"/") == mine[0].count(b"/") for key in mine) or kind in ("redis", "redlock", "etcd")
    if one != other:
        assert not set(mine) & set(keys(prefix, valid_name(other)))


@pytest.mark.parametrize("kind", KEYS)
@examples(20)
@given(one=names, other=names, first=prefixes, second=prefixes)
@example(one="b:{c", other="c", first="a", second="a:b")
def test_two_prefixes_share_no_key(kind: str, one: str, other: str, first: str, second: str) -> None:
    keys, _ = KEYS[kind]
    if first != second:
        assert not set(keys(first, one)) & set(keys(second, other))


@examples(20)
@given(one=names, other=names)
@example(one="a", other="a\x01")
def test_what_stands_for_one_name_stands_for_no_other(one: str, other: str) -> None:
    """Ranges of etcd, parts of a path, patterns of Redis, literals of SQL."""
    start, line = EtcdKeys("p").of(one)
    low, high = everybody(start)
    inside, in_line = EtcdKeys("p").of(other)
    assert (low <= inside + b"wx" < high) == (one == other)
    assert not low <= in_line + b"x" < high
    assert EtcdKeys("p").name_of(line + b"x") == one
    assert zookeeper.decode(zookeeper.encode(one)) == one
    assert "/" not in zookeeper.encode(one)
    assert zookeeper.encode(one) not in ("", ".", "..")
    assert name_of(b"hf", state_key(b"hf", one)) == one
    assert all(sign not in pattern_of(b"hf", one)[:-2] for sign in (b"*", b"?", b"["))
    assert set(literal(one)) <= set("x'0123456789abcdef")
    assert (literal(one) == literal(other)) == (one == other)
    assert url_of(ConsulKeys("p").book(one)).isascii()
    assert not set(url_of(ConsulKeys("p").book(one))) & set(" ?#\r\n")


@examples(8)
@given(given=st.lists(names, min_size=1, max_size=8, unique=True))
def test_many_names_at_once_in_the_embedded_stores(given: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.getbasetemp() / "names.db"
    for url in (f"memory://{uuid4().hex}", f"sqlite://{file}"):
        hold_all(url, given)


def hold_all(url: str, given: list[str]) -> None:
    """Each is there once, and is nobody else's."""
    with holdfast.connect(url) as locks, holdfast.connect(url) as other:
        leases = [locks.lock(name).acquire(timeout=0) for name in given]
        assert sorted(locks.names()) == sorted(given)
        for name, lease in zip(given, leases, strict=True):
            assert other.lock(name).try_acquire() is None
            assert [one.token for one in other.inspect(name).holders] == [lease.token]
            lease.release()
        assert list(locks.names()) == []


@pytest.mark.server
@pytest.mark.parametrize("kind", ["redis", "etcd"])
def test_many_names_at_once_on_real_servers(kind: str) -> None:
    with servers.start(kind) as server:

        @examples(3)
        @given(given=st.lists(names, min_size=5, max_size=10, unique=True))
        def check(given: list[str]) -> None:
            hold_all(server.url, given)

        check()


def test_a_tenant_within_the_prefix_of_another_is_not_listed_there() -> None:
    """Consul: of everything below the one's `locks/`, the other's own `locks/` and `sessions/` are no names."""
    with World(1) as world:
        ScriptedConsul(Process(world, "server"), Streams(world), ("consul", 8500))
        process = Process(world, "client")
        outer = open_consul("consul://consul/a", process.driver)
        inner = open_consul("consul://consul/a/locks", process.driver)

        async def main() -> None:
            for name, store in (("x", inner), ("y", outer)):
                assert isinstance(await store.claim(Claim(name, new_holder(), "me", 20.0)), Grant)
            assert await inner.names() == ["x"]
            assert await outer.names() == ["y"]

        world.run(process.spawn(main, "main"))
