"""etcd://, etcds://: every member that the URL names, by gRPC, as locks are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..drivers.base import boot_time, finish
from ..drivers.dialing import is_local
from ..drivers.threads import Threads
from ..errors import HoldfastError
from ..stores.etcd.keys import Keys
from ..stores.etcd.replies import Refused, fields, read_range
from ..stores.etcd.requests import RANGE, range_of
from ..stores.etcd.url import Target, parse
from ..stores.etcd.wire import Wire
from ..stores.kit.url import show, tls_context
from .findings import Finding, Ward, ok, problem, unseen, warning
from .network import almighty, clocks, compare, http_time, members, secrecy

STATUS = b"/etcdserverpb.Maintenance/Status"
MEMBER_LIST = b"/etcdserverpb.Cluster/MemberList"
MATTERS = "leases are counted by a clock that nobody sets; but ages of locks are shown by the clients' wall clocks"
DEFAULT_QUOTA = 2 << 30
_FULL = 0.8
_MOST = 1000


class Status(NamedTuple):
    """As a member tells of itself."""

    where: str
    cluster: int
    version: str
    size: int
    quota: int
    leader: int
    errors: tuple[str, ...]
    learner: bool


class EtcdWard(Ward):
    order = ("version", "quorum", "persistence", "clock", "tls and login", "keys")

    def __init__(self, target: Target) -> None:
        self.target = target
        self.wires = {show(one): Wire(target._replace(addresses=(one,)), Threads()) for one in target.addresses}
        self.statuses: list[Status] = []
        self.silent: list[tuple[str, object]] = []
        for where, wire in self.wires.items():
            try:
                self.statuses.append(_status(where, self.ask(wire, STATUS)))
            except (HoldfastError, Refused, OSError) as error:
                self.silent.append((where, error))

    def ask(self, wire: Wire, path: bytes, message: bytes = b"") -> bytes:
        return finish(wire.ask(path, message, boot_time() + self.target.timeout))

    @property
    def any(self) -> Wire:
        return self.wires[self.statuses[0].where]

    def close(self) -> None:
        for wire in self.wires.values():
            wire.close()

    def version(self) -> Iterable[Finding]:
        return [ok(f"{one.where}: etcd {one.version}") for one in self.statuses]

    def quorum(self) -> Iterator[Finding]:
        yield from members([one.where for one in self.statuses], self.silent, "member")
        if len({one.cluster for one in self.statuses}) > 1:
            yield problem("the members of the URL belong to different clusters", "name members of one cluster")
        for one in self.statuses:
            if not one.leader:
                yield problem(f"{one.where} knows no leader", "its cluster has no majority: bring members back")
            if one.learner:
                yield warning(
                    f"{one.where} is a learner, which serves no reads", "promote it, or leave it out of the URL"
                )
        count = len([field for field, _ in fields(self.ask(self.any, MEMBER_LIST)) if field == 2])
        named = len(self.target.addresses)
        if count > named:
            yield warning(
                f"the cluster has {count} members, and the URL names {named}: when those are down, so are the locks",
                "name all members in the URL",
            )

    def persistence(self) -> Iterator[Finding]:
        for one in self.statuses:
            for error in one.errors:
                yield problem(f"{one.where}: {error}", "compact and defragment it, then: etcdctl alarm disarm")
            quota = one.quota or DEFAULT_QUOTA
            if one.size > quota * _FULL:
                yield warning(
                    f"{one.where}: its database has {one.size >> 20} MB of {quota >> 20}; when it is full, nothing is granted",
                    "compact and defragment it, or raise --quota-backend-bytes",
                )
            elif not one.errors:
                yield ok(
                    f"{one.where}: every grant is on the disks of a majority; database {one.size / (1 << 20):.1f} MB"
                )

    def clock(self) -> Iterator[Finding]:
        tls = None
        if self.target.tls:
            tls = tls_context(self.target.ca, self.target.cert, self.target.cert_key, "http/1.1")
        found = []
        for address in self.target.addresses:
            if show(address) in {one.where for one in self.statuses}:
                clock = compare(lambda at=address: http_time(at, tls, "/version", self.target.timeout), 1.0)  # type: ignore[misc]
                found.append((show(address), clock))
        yield from clocks(found, MATTERS)

    def tls_and_login(self) -> Iterator[Finding]:
        target = self.target
        hosts = [host for host, _ in target.addresses]
        login = bool(target.username or target.cert)
        yield from secrecy(hosts, tls=target.tls, login=login, scheme="etcds://")
        if target.username == "root":  # who alone may change users and roles
            yield almighty("root")
        elif target.username:  # etcd refuses logins while it asks nobody for them
            yield ok("etcd asks for a login, and gives each user rights")
        elif not target.cert and not all(map(is_local, hosts)):
            yield problem(
                "etcd asks nobody for a login",
                "create users and roles (`holdfast migrate --acl`), then: etcdctl auth enable",
            )

    def keys(self) -> Iterator[Finding]:
        """A key of a holder, or of one in line, that no lease ends: written by hand, or restored without its leases."""
        some = 0
        try:
            for start, end in Keys(self.target.prefix).spans(""):
                found = read_range(self.ask(self.any, RANGE, range_of(start, end, limit=_MOST))).found
                some += len([one for one in found if not one.lease])
        except Refused as error:
            yield unseen(error)
            return
        if some:
            yield problem(
                f"{some} locks under {self.target.prefix}/ hang on no lease: they never end",
                "`holdfast ls`, then `holdfast release NAME --token T` for each that nobody holds",
            )
        else:
            yield ok(f"everything under {self.target.prefix}/ ends with the lease of its process")


def _status(where: str, message: bytes) -> Status:
    cluster, errors = 0, []
    found: dict[int, int | bytes] = {}
    for field, value in fields(message):
        if field == 1 and isinstance(value, bytes):
            told = dict(fields(value)).get(1, 0)
            cluster = told if isinstance(told, int) else 0
        elif field == 8 and isinstance(value, bytes):
            errors.append(value.decode(errors="replace"))
        else:
            found[field] = value

    def number(field: int) -> int:
        value = found.get(field, 0)
        return value if isinstance(value, int) else 0

    version = found.get(2, b"?")
    name = version.decode(errors="replace") if isinstance(version, bytes) else "?"
    return Status(where, cluster, name, number(3), number(12), number(4), tuple(errors), bool(number(10)))


def admit(url: str) -> Ward:
    return EtcdWard(parse(url))
