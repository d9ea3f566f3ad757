"""Which store? What each of them gives, as data, and which of those that somebody runs fits what they need."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ..errors import Misuse

FAILOVER, SHORT, FAIR, WINDOWS = "failover", "short-ttl", "fair", "windows"
NEEDS: Mapping[str, str] = {
    FAILOVER: "a lock that is held stays held when a server dies",
    SHORT: "ttls of a second or two",
    FAIR: "first come, first served, and woken at once",
    WINDOWS: "runs on Windows",
}
MACHINES = ("one", "many")


class Kind(NamedTuple):
    """A store: how to get it, and which needs it does not meet, and why."""

    name: str
    url: str
    extra: str
    because: str
    lacks: Mapping[str, str]
    page: str

    @property
    def install(self) -> str:
        return f"pip install '.[{self.extra}]'" if self.extra else "pip install ."


_POLLS = "its connections wait by poll(), which Windows does not have"
_PRIMARY = "only with a synchronous replica: an asynchronous one may not know the lock"
_OWN = "your data is there: no new server, and it fails when your data fails, and no more often"
_QUORUM = "it keeps excluding when a server dies: a majority has agreed to every grant"

# The first that fits is the answer.
KINDS = (
    Kind("sqlite", "sqlite:///var/lib/app/locks.db", "", "one machine needs no server", {}, "which-store"),
    Kind(
        "postgresql",
        "postgresql://user@localhost/app",
        "postgresql",
        _OWN,
        {FAILOVER: _PRIMARY, WINDOWS: _POLLS},
        "postgresql",
    ),
    Kind("mysql", "mysql://user@localhost/app", "mysql", _OWN, {FAILOVER: _PRIMARY, WINDOWS: _POLLS}, "mysql"),
    Kind("etcd", "etcd://a,b,c", "etcd", _QUORUM, {SHORT: "its leases have whole seconds: two and more"}, "etcd"),
    Kind(
        "zookeeper",
        "zookeeper://a,b,c",
        "zookeeper",
        _QUORUM,
        {SHORT: "the server decides how short a session may be: two ticks, mostly four seconds", WINDOWS: _POLLS},
        "zookeeper",
    ),
    Kind(
        "consul",
        "consul://localhost:8500",
        "consul",
        _QUORUM,
        {SHORT: "its sessions take ten seconds and more, unless the servers allow less"},
        "consul",
    ),
    Kind(
        "redis",
        "redis://localhost:6379",
        "redis",
        "it is the fastest",
        {FAILOVER: "the new master may not know the lock, and grants it a second time"},
        "redis",
    ),
    Kind(
        "redlock",
        "redlock://a,b,c,d,e",
        "redis",
        "a majority of independent Redis nodes has to agree, so a minority may die",
        {FAIR: "waiters look again after 4 to 120 ms, and whoever comes at the right moment is in", WINDOWS: _POLLS},
        "redlock",
    ),
)
NAMES = tuple(kind.name for kind in KINDS)


class Choice(NamedTuple):
    best: Kind
    missing: tuple[str, ...]  # what even the best of them does not give, in words
    others: tuple[Kind, ...]  # would do as well
    refused: Mapping[str, str]  # name → why not


def choose(
    have: Collection[str], need: Collection[str] = (), machines: str = "many", data: str | None = None
) -> Choice:
    """`have`: which stores are run; `need`: of NEEDS; `machines`: one or many; `data`: where what the lock protects is kept."""
    _known(have, NAMES, "have")
    _known(need, NEEDS, "need")
    _known([machines], MACHINES, "machines")
    if data is not None:
        _known([data], NAMES, "data")
    order = sorted(KINDS, key=lambda kind: (kind.name != data, KINDS.index(kind)))
    run = [kind for kind in order if kind.name in have or kind.name == data]
    # On one machine a file will do, unless the data is in a server already; several machines cannot share it.
    embedded = [kind for kind in KINDS if kind.name == "sqlite"]
    run = [kind for kind in run if kind.name != "sqlite"]
    if machines == "one":
        run = [*run, *embedded] if data in [kind.name for kind in run] else [*embedded, *run]
    if not run:
        raise Misuse(
            "several machines need a store that they all reach, and you run none that is known here: run the one that you know "
            f"best of {', '.join(NAMES[1:])}"
        )
    fits = [kind for kind in run if not kind.lacks.keys() & set(need)]
    best = fits[0] if fits else min(run, key=lambda kind: len(kind.lacks.keys() & set(need)))
    return Choice(
        best,
        tuple(f"{NEEDS[one]} ({best.lacks[one]})" for one in need if one in best.lacks),
        tuple(fits[1:]),
        {
            kind.name: "; ".join(kind.lacks[one] for one in need if one in kind.lacks)
            for kind in run
            if kind is not best and kind not in fits
        },
    )


def _known(said: Collection[str], known: Collection[str], what: str) -> None:
    for one in said:
        if one not in known:
            raise Misuse(f"--{what} is of {', '.join(known)}, not {one!r}")
