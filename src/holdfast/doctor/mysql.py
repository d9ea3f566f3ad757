"""mysql://, mariadb://: by plain questions, on a connection as locks have it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..drivers.base import finish
from ..errors import Unavailable
from ..stores.mysql.connection import dial
from ..stores.mysql.faults import ServerError
from ..stores.mysql.url import Target, parse
from .findings import Finding, Ward, ok, problem, warning
from .network import almighty, secrecy
from .sql import SqlWard, crowd

_HERE = "('localhost', '127.0.0.1', '::1')"


class MySqlWard(SqlWard):
    order = (
        "version",
        "rights",
        "persistence",
        "replicas",
        "clock",
        "tls and login",
        "users",
        "connections",
        "blockers",
    )

    now = "SELECT UNIX_TIMESTAMP(SYSDATE(6))"

    def __init__(self, target: Target) -> None:
        self.target = target
        self.line = finish(dial(target, target.timeout))

    @property
    def where(self) -> str:
        return self.target.shown()

    def ask(self, question: str) -> list[tuple[Any, ...]]:
        try:
            return list(finish(self.line.ask(question, self.target.timeout))[0])
        except ServerError as error:
            raise Unavailable(f"{error}") from None

    def variables(self, *names: str) -> dict[str, str]:
        listed = ", ".join(f"'{name}'" for name in names)
        rows = self.ask(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({listed})")
        return {_text(name): _text(value) for name, value in rows}

    def status(self, like: str) -> dict[str, str]:
        return {_text(name): _text(value) for name, value in self.ask(f"SHOW GLOBAL STATUS LIKE '{like}'")}

    def close(self) -> None:
        self.line.close()

    def version(self) -> Iterable[Finding]:
        return [ok(f"{self.line.server} at {self.target.shown()}")]

    def rights(self) -> Iterator[Finding]:
        granted = [_text(line) for (line,) in self.ask("SHOW GRANTS")]
        user = self.target.user or "this user"
        everywhere = [line for line in granted if " ON *.* " in line]
        if any("ALL PRIVILEGES" in line or "SUPER" in line for line in everywhere):
            yield almighty(user)
        else:
            yield ok(f"{user} is no administrator of the server")

    def persistence(self) -> Iterator[Finding]:
        said = self.variables("innodb_flush_log_at_trx_commit", "innodb_doublewrite", "read_only", "super_read_only")
        if "ON" in (said.get("read_only"), said.get("super_read_only")):
            yield problem("it is read-only: a replica, or in maintenance. It grants no locks", "name the primary")
        flush = said.get("innodb_flush_log_at_trx_commit")
        if flush == "1":
            yield ok("every grant is on disk before it is answered (innodb_flush_log_at_trx_commit 1)")
        else:
            yield warning(
                f"innodb_flush_log_at_trx_commit is {flush}: a crash may forget the last second's grants, and another may "
                "then be given the same lock",
                "SET GLOBAL innodb_flush_log_at_trx_commit = 1",
            )
        if said.get("innodb_doublewrite") == "OFF":
            yield warning("innodb_doublewrite is off: a crash may damage pages", "switch it on")

    def replicas(self) -> Iterator[Finding]:
        cluster = self.status("wsrep_%")
        if cluster.get("wsrep_connected") == "ON":
            if cluster.get("wsrep_cluster_status") != "Primary":
                yield problem("this node of the Galera cluster is cut off from the majority", "bring the others back")
            yield warning(
                f"a Galera cluster of {cluster.get('wsrep_cluster_size')}: nodes do not see each other's row locks, and a "
                "claim may be undone at its commit",
                "send all locks to one node",
            )
            return
        dumps = self.ask("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'")[0][0]
        semi = self.status("Rpl_semi_sync_%_status")
        if not dumps:
            yield ok("no replica is connected (as far as this user can see), and so no failover that forgets a lock")
        elif "ON" in semi.values():
            yield ok(f"{dumps} replicas, semi-synchronous: a grant waits for one of them")
        else:
            yield warning(
                f"{dumps} replicas, and no grant waits for them: a failover may forget a lock",
                "switch semi-synchronous replication on; only fenced storage makes a failover harmless",
            )

    def tls_and_login(self) -> Iterator[Finding]:
        host = self.target.socket or self.target.host
        login = bool(self.target.password or self.target.cert)
        yield from secrecy([host], tls=self.target.tls, login=login, scheme="?tls=yes, and ca= if need be")

    def users(self) -> Iterator[Finding]:
        """Who gets in from elsewhere without a password."""
        column = "authentication_string"
        rows = self.ask(
            f"SELECT User, Host FROM mysql.user WHERE {column} = '' AND Host NOT IN {_HERE} AND Host <> @@hostname "  # noqa: S608
            "AND plugin IN ('', 'mysql_native_password', 'caching_sha2_password', 'sha256_password')"
        )
        for user, host in rows:
            yield problem(
                f"{_text(user)!r}@{_text(host)!r} has no password", "ALTER USER … IDENTIFIED BY …, or drop it"
            )
        if not rows:
            yield ok("nobody gets in from another machine without a password")

    def connections(self) -> Iterator[Finding]:
        used = int(self.status("Threads_connected")["Threads_connected"])
        most = int(self.variables("max_connections")["max_connections"])
        yield crowd(used, most, "raise max_connections, or lower ?pool=")

    def blockers(self) -> Iterator[Finding]:
        """Somebody in a transaction who locked rows and sleeps: claims may wait for them."""
        rows = self.ask(
            "SELECT p.ID, p.USER, p.TIME FROM information_schema.INNODB_TRX t "
            "JOIN information_schema.PROCESSLIST p ON p.ID = t.trx_mysql_thread_id "
            "WHERE t.trx_rows_locked > 0 AND p.COMMAND = 'Sleep'"
        )
        for number, user, seconds in rows:
            yield warning(
                f"the connection {number} of {_text(user)} has rows locked and has been idle for {seconds} s: if they are "
                "the lock table's, claims wait for it",
                f"end it there, or: KILL {number}",
            )
        if not rows:
            yield ok("nobody has rows locked and is idle")


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def admit(url: str) -> Ward:
    return MySqlWard(parse(url))
