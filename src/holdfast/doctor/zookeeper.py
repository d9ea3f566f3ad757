"""zookeeper://, zookeepers://: a session as locks have it, and the word `srvr`, which every member answers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..claim import new_holder
from ..drivers.base import finish
from ..drivers.dialing import is_local
from ..drivers.threads import Threads
from ..recipes import DEFAULT_TTL
from ..stores.zookeeper.session import MARGIN, Session
from ..stores.zookeeper.url import Target, parse
from ..stores.zookeeper.wire import tls_context
from .findings import Finding, Ward, ok, problem, warning
from .network import clocks, compare, heard, members, secrecy

MATTERS = "sessions are counted by a clock that nobody sets; but ages of locks are shown by the leader's wall clock"
_LONG, _SHORT = 20 * 86400.0, 0.01  # seconds: beyond what a server agrees to; in ms it has to fit into 32 bits


class ZooKeeperWard(Ward):
    order = ("version", "quorum", "session ttl", "clock", "tls and login")

    def __init__(self, target: Target) -> None:
        self.target = target
        self.driver = Threads()
        self._sessions: list[Session] = []
        self.said: dict[str, str] = {}
        self.silent: list[tuple[str, object]] = []
        for host, port in target.addresses:
            where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            try:
                self.said[where] = _word(target, (host, port), b"srvr")
            except OSError as error:
                self.silent.append((where, error))

    def session(self, seconds: float) -> Session:
        made = Session(self.target, seconds, self.driver)
        self._sessions.append(made)
        finish(made.opened(self.driver.now() + self.target.timeout))
        return made

    def close(self) -> None:
        for one in self._sessions:
            one.client.stop()
            one.client.close()

    def version(self) -> Iterator[Finding]:
        for where, said in self.said.items():
            found = re.search(r"version: ([0-9.]+)", said)
            yield ok(f"{where}: ZooKeeper {found[1]}" if found else f"{where} does not say its version: {said:.80}")

    def quorum(self) -> Iterator[Finding]:
        yield from members(list(self.said), self.silent, "member")
        for where, said in self.said.items():
            mode = re.search(r"Mode: (\S+)", said)
            if "not currently serving" in said:
                yield problem(f"{where} does not serve: it finds no quorum", "bring the other members back")
            elif mode and mode[1] == "standalone" and len(self.target.addresses) > 1:
                yield problem(
                    f"{where} stands alone, and is no member of an ensemble: locks there are other locks",
                    "name members of one ensemble",
                )
            elif mode:
                yield ok(f"{where} is {mode[1]}")

    def session_ttl(self) -> Iterator[Finding]:
        most, least = self.session(_LONG).seconds / MARGIN, self.session(_SHORT).seconds / MARGIN
        text = f"the ensemble agrees to leases from {least:.3g} s to {most:.3g} s"
        if most < DEFAULT_TTL:
            yield warning(f"{text}; the usual ttl of {DEFAULT_TTL:g} s is cut down to that", "raise maxSessionTimeout")
        elif least > DEFAULT_TTL:
            yield warning(f"{text}: a dead holder blocks the others that long", "lower minSessionTimeout")
        else:
            yield ok(f"{text} (a dead holder blocks the others for at least the former)")

    def clock(self) -> Iterator[Finding]:
        client = self.session(DEFAULT_TTL).client

        def leader() -> float:
            path = f"{self.target.root}/doctor-{new_holder()[:8]}"
            _, stat = client.create(path, b"", ephemeral=True, include_data=True)
            client.delete(path)
            return float(stat.ctime) / 1000

        yield from clocks([("the leader", compare(leader, 0.001))], MATTERS)

    def tls_and_login(self) -> Iterator[Finding]:
        target = self.target
        hosts = [host for host, _ in target.addresses]
        yield from secrecy(hosts, tls=target.tls, login=bool(target.username or target.cert), scheme="zookeepers://")
        if target.tls and not target.check_hostname:
            yield problem("check_hostname=no: whoever has any certificate of that authority may listen", "leave it out")
        acls, _ = self.session(DEFAULT_TTL).client.get_acls(target.root)
        anybody = [one for one in acls if one.id.scheme == "world"]
        if anybody and not all(map(is_local, hosts)):
            yield problem(
                f"everybody may write {target.root}: they can release every lock",
                "put a user into the URL, and set the ACL that `holdfast migrate --acl` prints",
            )
        elif anybody:
            yield ok(f"everybody who reaches it may write {target.root}")
        else:
            yield ok(f"{target.root} is for {', '.join(one.id.scheme for one in acls)} users only")


def _word(target: Target, address: tuple[str, int], word: bytes) -> str:
    """One of the four-letter words, and what the server says to it."""
    tls = tls_context(target) if target.tls else None
    return heard(address, tls, word, b"\0", target.timeout).decode(errors="replace")


def admit(url: str) -> Ward:
    return ZooKeeperWard(parse(url))
