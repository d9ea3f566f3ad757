"""postgresql://: by plain questions, on a connection of the doctor's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg

from ..drivers.dialing import is_local
from ..errors import Unavailable
from ..stores.also.postgresql import Asking
from ..stores.postgresql.greeting import SHARING, is_lent
from ..stores.postgresql.opening import open_psycopg
from ..stores.postgresql.url import Target, parse
from .findings import Finding, Ward, ok, problem, warning
from .network import almighty
from .sql import SqlWard, crowd

_LOCAL = ("127.0.0.1", "::1", "localhost", "samehost")


class PostgresWard(SqlWard):
    order = (
        "version",
        "rights",
        "pooler",
        "persistence",
        "replicas",
        "clock",
        "tls and login",
        "connections",
        "blockers",
    )

    now = "SELECT extract(epoch FROM clock_timestamp())"

    def __init__(self, target: Target) -> None:
        self.target = target
        self.connection = self._connect()

    def _connect(self) -> psycopg.Connection[Any]:
        try:
            return open_psycopg(self.target, Asking, max(1.0, self.target.timeout))
        except Unavailable as error:
            raise Unavailable(f"{self.target.where}: {error}") from None

    @property
    def where(self) -> str:
        return self.target.where

    def ask(self, question: str) -> list[tuple[Any, ...]]:
        try:
            with self.connection.transaction():
                # The owner of the database says where functions are looked for, and this may be a superuser. For as long as one
                # transaction: a pooler gives the connection to others.
                self.connection.execute("SET LOCAL search_path = pg_catalog, pg_temp")
                return self.connection.execute(question.encode()).fetchall()
        except psycopg.Error as error:
            raise Unavailable(str(error)) from None

    def setting(self, name: str) -> str:
        return str(self.ask(f"SELECT current_setting('{name}')")[0][0])

    def close(self) -> None:
        self.connection.close()

    def version(self) -> Iterator[Finding]:
        yield ok(f"PostgreSQL {self.setting('server_version')} at {self.target.where}, schema {self.target.schema}")

    def rights(self) -> Iterator[Finding]:
        ((user, everything),) = self.ask("SELECT current_user, current_setting('is_superuser')")
        if everything == "on":
            yield almighty(f"{user} is a superuser, and")
        else:
            yield ok(f"{user} is no superuser")

    def pooler(self) -> Iterator[Finding]:
        ((pid,),) = self.ask("SELECT pg_backend_pid()")
        if pid == self.connection.info.backend_pid:
            yield ok("none: every connection is one of the server's own")
            return
        other = self._connect()
        try:
            pair = (self.connection, other)
            answers = []
            for which, text in SHARING:
                cursor = pair[which].execute(text.encode())
                answers.append([tuple(map(str, row)) for row in cursor.fetchall()] if cursor.description else [])
        except psycopg.Error as error:
            raise Unavailable(str(error)) from None
        finally:
            other.close()
        if not is_lent(answers):  # type: ignore[arg-type]
            yield ok("there is one, and it lends a connection for a whole session")
        elif self.target.mode == "session":
            yield problem(
                "there is one, which lends connections transaction by transaction (PgBouncer's pool_mode = transaction): "
                "mode=session would lose its locks to others",
                "leave out mode=session, or set pool_mode = session",
            )
        else:
            yield warning(
                "there is one, which lends connections transaction by transaction: locks hold, but no bell is heard, so "
                "waiters poll",
                "say bell=no if that is meant; or go past the pooler, for locks only",
            )

    def persistence(self) -> Iterator[Finding]:
        fsync, whole, commit = (self.setting(one) for one in ("fsync", "full_page_writes", "synchronous_commit"))
        if fsync != "on":
            yield problem("fsync is off: a crash may damage or forget everything", "fsync = on")
        if whole != "on":
            yield warning("full_page_writes is off: a crash may damage pages", "full_page_writes = on")
        if self.target.relaxed:
            yield warning("durability=relaxed: a crash may forget grants of the last 0.6 s", "leave it out of the URL")
        elif fsync == "on":
            yield ok(f"every grant is on disk before it is answered (synchronous_commit {commit})")

    def replicas(self) -> Iterator[Finding]:
        ((standby,),) = self.ask("SELECT pg_is_in_recovery()")
        if standby:
            yield problem(
                "this is a standby: it grants no locks", "name the primary, or add target_session_attrs=read-write"
            )
            return
        states = [row[0] for row in self.ask("SELECT sync_state FROM pg_stat_replication")]
        waits = [one for one in states if one in ("sync", "quorum")]
        if not states:
            yield ok("no replica is connected, and so there is no failover that forgets a lock")
        elif waits:
            yield ok(f"{len(states)} replicas, of which a grant waits for {len(waits)} or as many as are asked for")
        else:
            yield warning(
                f"{len(states)} replicas, and none is waited for: a failover may forget a lock",
                "set synchronous_standby_names; only fenced storage makes a failover harmless",
            )

    def tls_and_login(self) -> Iterator[Finding]:
        link = self.connection.pgconn
        far = [host for host in self.target.hosts if not is_local(host)]
        mode = str(self.connection.info.get_parameters().get("sslmode", "prefer"))
        if far and not link.ssl_in_use:
            yield problem(
                "clear text: whoever is on the way reads and changes everything", "sslmode=verify-full in the URL"
            )
        elif far and mode != "verify-full":
            yield warning(f"encrypted, but sslmode={mode} does not check who answers", "sslmode=verify-full in the URL")
        else:
            yield ok("encrypted" if link.ssl_in_use else "clear text, which does not leave this machine")
        if far and not link.used_password and not self.connection.info.get_parameters().get("sslcert"):
            yield problem("the server asks for no password", "scram-sha-256 in pg_hba.conf")
        if self.setting("password_encryption") == "md5":
            yield warning("passwords are kept as MD5", "password_encryption = 'scram-sha-256', then set them anew")
        local = ", ".join(f"'{one}'" for one in _LOCAL)
        rules = self.ask(
            "SELECT line_number, address FROM pg_hba_file_rules WHERE auth_method = 'trust' AND type LIKE 'host%' "  # noqa: S608
            f"AND address NOT IN ({local}) ORDER BY 1"
        )
        for line, address in rules:
            yield problem(
                f"pg_hba.conf, line {line}: everybody from {address} gets in without a password",
                "scram-sha-256 instead of trust",
            )

    def connections(self) -> Iterator[Finding]:
        ((used,),) = self.ask("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")
        most = int(self.setting("max_connections"))
        yield crowd(used, most, "raise max_connections, or use a pooler")

    def blockers(self) -> Iterator[Finding]:
        """Somebody who has rows of the lock table locked and went to lunch: claims of these names wait for them."""
        rows = self.ask(
            "SELECT a.pid, a.state, a.application_name, extract(epoch FROM clock_timestamp() - a.xact_start) "  # noqa: S608
            "FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace "
            "JOIN pg_stat_activity a ON a.pid = l.pid "
            f"WHERE n.nspname = '{self.target.schema}' AND c.relname = 'locks' AND l.mode <> 'AccessShareLock' "
            "AND a.state LIKE 'idle in transaction%'"
        )
        for pid, state, application, seconds in rows:
            yield problem(
                f"the session {pid} ({application or 'without a name'}) is {state} for {float(seconds or 0):.0f} s and has the "
                "lock table locked: claims wait for it",
                f"end it there, or: SELECT pg_terminate_backend({pid})",
            )
        prepared = self.ask("SELECT gid, extract(epoch FROM clock_timestamp() - prepared) FROM pg_prepared_xacts")
        for gid, seconds in prepared:
            yield warning(
                f"the prepared transaction {gid!r} has been open for {float(seconds):.0f} s",
                "COMMIT or ROLLBACK PREPARED",
            )
        if not rows and not prepared:
            yield ok("nobody has the lock table locked and is idle")


def admit(url: str) -> Ward:
    return PostgresWard(parse(url))
