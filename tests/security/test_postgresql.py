"""PostgreSQL: a password is not sent in clear text, and a superuser executes nobody else's functions."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import holdfast
import holdfast.aio
from holdfast import Misuse
from holdfast.doctor import examine
from holdfast.testing import servers


@contextlib.contextmanager
def rogue(got: list[bytes], question: bytes = b"R" + struct.pack(">II", 8, 3)) -> Iterator[int]:
    """Says that it knows no TLS, and asks for the password in clear text, or for something else."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                with listening.accept()[0] as line:
                    if line.recv(8)[4:8] == struct.pack(">I", 80877103):
                        line.sendall(b"N")
                        line.recv(4096)
                    line.sendall(question)
                    got.append(line.recv(4096))

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


@pytest.mark.skipif(psycopg.pq.version() < 160000, reason="an older libpq cannot be told")
@pytest.mark.parametrize(
    ("options", "sent"),
    [("", False), ("?sslmode=disable", False), ("?sslmode=require", False), ("?require_auth=password", True)],
)
def test_a_password_goes_in_clear_text_only_if_the_url_allows_it(options: str, sent: bool) -> None:
    got: list[bytes] = []
    with rogue(got) as port:
        url = f"postgresql://u:hunter2@127.0.0.1:{port}/db{options}"
        with contextlib.suppress(holdfast.HoldfastError), holdfast.connect(url) as locks:
            locks.lock("x").acquire(timeout=0)
    assert any(b"hunter2" in one for one in got) is sent


@pytest.mark.skipif(psycopg.pq.version() < 160000, reason="an older libpq cannot be told")
@pytest.mark.parametrize("way", ["PGREQUIREAUTH", "PGSERVICE"])
def test_what_the_environment_requires_of_the_server_is_not_weakened(
    way: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ours is the least: who asks for more is given it."""
    (tmp_path / "services").write_text("[ours]\nrequire_auth=scram-sha-256\n")
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    monkeypatch.setenv(way, {"PGREQUIREAUTH": "scram-sha-256", "PGSERVICE": "ours"}[way])
    asked_for_md5 = b"R" + struct.pack(">II", 12, 5) + b"salt"
    got: list[bytes] = []
    with (
        rogue(got, asked_for_md5) as port,
        holdfast.connect(f"postgresql://u:pw@127.0.0.1:{port}/db") as locks,
        pytest.raises(holdfast.HoldfastError, match="scram-sha-256"),
    ):
        locks.lock("x").acquire(timeout=0)
    assert not any(got)


@pytest.mark.skipif(psycopg.pq.version() < 160000, reason="an older libpq cannot be told")
def test_it_says_what_to_do_instead() -> None:
    with rogue([]) as port:
        url = f"postgresql://u:hunter2@127.0.0.1:{port}/db"
        with holdfast.connect(url) as locks, pytest.raises(Misuse, match="add sslmode=verify-full"):
            locks.lock("x").acquire(timeout=0)


@pytest.mark.server
@pytest.mark.parametrize("mode", ["lease", "session"])
def test_a_superuser_does_not_execute_functions_that_others_own(mode: str) -> None:
    with servers.start("postgresql") as server, psycopg.connect(server.url, autocommit=True) as admin:
        host, port = server.address
        database = admin.info.dbname
        admin.execute("CREATE ROLE app LOGIN")
        admin.execute(f'GRANT CREATE ON DATABASE "{database}" TO app')
        with holdfast.connect(f"postgresql://app@{host}:{port}/{database}?mode={mode}") as locks:
            locks.lock("a").acquire(timeout=0).release()
            with psycopg.connect(f"postgresql://app@{host}:{port}/{database}", autocommit=True) as app:
                app.execute(
                    "CREATE OR REPLACE FUNCTION holdfast.version() RETURNS integer LANGUAGE plpgsql AS "
                    "$$ BEGIN BEGIN EXECUTE 'ALTER ROLE app SUPERUSER'; EXCEPTION WHEN OTHERS THEN NULL; END; RETURN 2; END $$"
                )
            url = f"{server.url}{'&' if '?' in server.url else '?'}mode={mode}"
            with holdfast.connect(url) as other, pytest.raises(Misuse, match="Connect as that role"):
                other.lock("a").acquire(timeout=0)
            with (
                holdfast.connect(f"{url}&options=-crole%3Dapp") as disguised,
                pytest.raises(Misuse, match="SET ROLE is not enough"),
            ):
                disguised.lock("a").acquire(timeout=0)
            assert admin.execute("SELECT rolsuper FROM pg_roles WHERE rolname = 'app'").fetchone() == (False,)
            admin.execute("CREATE ROLE boss LOGIN; GRANT pg_execute_server_program TO boss; GRANT app TO boss")
            with (
                holdfast.connect(f"postgresql://boss@{host}:{port}/{database}?mode={mode}") as programs,
                pytest.raises(Misuse, match="may run programs on the server"),
            ):
                programs.lock("a").acquire(timeout=0)
            admin.execute("CREATE ROLE peer LOGIN; GRANT app TO peer")
            with holdfast.connect(f"postgresql://peer@{host}:{port}/{database}?mode={mode}") as peer:
                peer.lock("b").acquire(timeout=0).release()
            locks.lock("a").acquire(timeout=0).release()


@pytest.mark.server
@pytest.mark.parametrize("mode", ["lease", "session"])
def test_a_superuser_creates_the_schema_of_nothing_that_the_owner_of_the_database_made(mode: str) -> None:
    with servers.start("postgresql") as server, psycopg.connect(server.url, autocommit=True) as admin:
        host, port = server.address
        admin.execute("CREATE ROLE app LOGIN")
        admin.execute("CREATE DATABASE shop OWNER app")
        with psycopg.connect(f"postgresql://app@{host}:{port}/shop", autocommit=True) as app:
            app.execute("CREATE SCHEMA trap")
            app.execute(
                "CREATE FUNCTION trap.spring() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN BEGIN EXECUTE "
                "'ALTER ROLE app SUPERUSER'; EXCEPTION WHEN OTHERS THEN NULL; END; RETURN true; END $$"
            )
            app.execute(
                "CREATE FUNCTION trap.hashtextextended(text, bigint) RETURNS bigint LANGUAGE sql AS "
                "'SELECT CASE WHEN trap.spring() THEN 1::bigint END'"
            )
            app.execute("CREATE DOMAIN trap.bytea AS pg_catalog.bytea CHECK (trap.spring())")
            app.execute("ALTER DATABASE shop SET search_path = trap, pg_catalog")
        with holdfast.connect(f"postgresql://{admin.info.user}@{host}:{port}/shop?mode={mode}") as locks:
            locks.lock("a").acquire(timeout=0).release()
            locks.inspect("a")
        assert admin.execute("SELECT rolsuper FROM pg_roles WHERE rolname = 'app'").fetchone() == (False,)


OPERATORS = [
    ("*", "numeric", "integer"), ("*", "numeric", "numeric"), ("&", "integer", "integer"), ("|", "bigint", "bigint"),
    ("<<", "bigint", "integer"), ("+", "bigint", "bigint"), ("=", "integer", "bigint"), ("=", "smallint", "integer"),
    *((sign, "bigint", "integer") for sign in ("=", "<>", "<", ">")),
    *((sign, kind, kind) for kind in ("bytea", "bigint", "integer", "oid", "name", "text", "boolean")
      for sign in ("=", "<>", "<", ">", ">=")),
]  # fmt: skip
FUNCTIONS = [
    "clock_timestamp() RETURNS timestamptz",
    "octet_length(bytea) RETURNS integer",
    "substr(bytea, integer, integer) RETURNS bytea",
    "current_database() RETURNS name",
    "pg_cancel_backend(integer) RETURNS boolean",
]
SELECT = "SELECT * FROM"
VIEWS = ["pg_locks", "pg_stat_activity", "pg_database"]


def spring(app: psycopg.Connection[Any]) -> None:
    """Whatever holdfast may name, and not in full, makes `app` a superuser if one comes upon it."""
    made = (
        " LANGUAGE plpgsql AS $$ BEGIN BEGIN EXECUTE 'ALTER ROLE app SUPERUSER'; EXCEPTION WHEN OTHERS THEN NULL; END; "
        "RETURN NULL; END $$"
    )
    app.execute("CREATE SCHEMA trap")
    app.execute(f"CREATE FUNCTION trap.spring() RETURNS boolean {made}")
    for number, (sign, left, right) in enumerate(OPERATORS):
        gives = left if sign in "*&|<<+" and sign != "<" else "boolean"
        app.execute(f"CREATE FUNCTION trap.of_{number}({left}, {right}) RETURNS {gives} {made}")
        app.execute(f"CREATE OPERATOR trap.{sign} (LEFTARG = {left}, RIGHTARG = {right}, FUNCTION = trap.of_{number})")
    for function in FUNCTIONS:
        app.execute(f"CREATE FUNCTION trap.{function} {made}")
    for view in VIEWS:
        app.execute(f"CREATE VIEW trap.{view} AS {SELECT} pg_catalog.{view} WHERE trap.spring() IS NULL")
    app.execute("CREATE DOMAIN trap.bytea AS pg_catalog.bytea CHECK (trap.spring() IS NULL)")
    app.execute("ALTER DATABASE shop SET search_path = trap, pg_catalog")


@pytest.mark.server
def test_behind_a_pooler_too_nothing_is_named_that_others_may_have_made() -> None:
    """No SET of ours lasts there. Until PostgreSQL 14 everybody may create in `public`, and what fits better is taken."""
    with (
        servers.start("pgbouncer") as pooler,
        psycopg.connect(pooler.postgresql.url, autocommit=True) as admin,
    ):
        host, port = pooler.postgresql.address
        admin.execute("CREATE ROLE app LOGIN")
        admin.execute("CREATE DATABASE shop OWNER app")
        with psycopg.connect(f"postgresql://app@{host}:{port}/shop", autocommit=True) as app:
            spring(app)
        direct = f"postgresql://{admin.info.user}@{host}:{port}/shop"
        for url in (f"postgresql://{pooler.host}:{pooler.port}/shop", direct, f"{direct}?mode=session"):
            with holdfast.connect(url) as locks, locks.lock("a").acquire(timeout=10):
                assert locks.names() == ["a"]
                assert locks.inspect("a").holders
                with pytest.raises(holdfast.NotAcquired):
                    locks.lock("a").acquire(timeout=0.1)
            assert any(one.text.startswith("PostgreSQL ") for one in examine(url))
            assert admin.execute("SELECT rolsuper FROM pg_roles WHERE rolname = 'app'").fetchone() == (False,), url


@pytest.mark.server
def test_the_doctor_calls_no_function_that_the_owner_of_the_database_put_before_those_of_the_server() -> None:
    with servers.start("postgresql") as server, psycopg.connect(server.url, autocommit=True) as admin:
        host, port = server.address
        admin.execute("CREATE ROLE app LOGIN")
        admin.execute("CREATE DATABASE shop OWNER app")
        with psycopg.connect(f"postgresql://app@{host}:{port}/shop", autocommit=True) as app:
            app.execute("CREATE SCHEMA trap")
            for function in ("current_setting(text) RETURNS text", "pg_backend_pid() RETURNS integer"):
                app.execute(
                    f"CREATE FUNCTION trap.{function} LANGUAGE plpgsql AS "
                    "$$ BEGIN BEGIN EXECUTE 'ALTER ROLE app SUPERUSER'; EXCEPTION WHEN OTHERS THEN NULL; END; RETURN 1; END $$"
                )
            app.execute("ALTER DATABASE shop SET search_path = trap, pg_catalog")
        found = examine(f"postgresql://{admin.info.user}@{host}:{port}/shop")
        assert any(one.text.startswith("PostgreSQL ") for one in found), found
        assert admin.execute("SELECT rolsuper FROM pg_roles WHERE rolname = 'app'").fetchone() == (False,)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://h?ca=/x", "rediss://"),
        ("redis+sentinel://h/s?cert=/x", r"rediss\+sentinel://"),
        ("redis+cluster://h?cert_key=/x", r"rediss\+cluster://"),
        ("redlock://a,b,c?ca=/x", "redlocks://"),
        ("unix:///run/redis.sock?ca=/x", "rediss://"),
        ("rediss://h?cert_key=/x", "name that with cert"),
        ("etcd://h?ca=/x", "etcds://"),
        ("etcds://h?cert_key=/x", "name that with cert"),
        ("zookeeper://h?ca=/x", "zookeepers://"),
        ("zookeepers://h?cert_key=/x", "name that with cert"),
        ("zookeepers://h?cert=/x", "come together"),
        ("consul://h?ca=/x", "consuls://"),
        ("consuls://h?cert_key=/x", "name that with cert"),
        ("mysql://u@h/db?ca=/x&tls=no", "tls=no"),
        ("mysql://u@h/db?cert_key=/x", "name that with cert"),
        ("postgresql://h/db?sslmode=disable&sslrootcert=/x", "sslmode=disable"),
    ],
)
def test_options_of_tls_that_contradict_each_other_are_refused(url: str, says: str) -> None:
    with pytest.raises(Misuse, match=says):
        holdfast.connect(url)


@pytest.mark.server
@pytest.mark.parametrize("world", ["threads", "asyncio"])
def test_a_ring_that_is_no_text_ends_nobodys_ear(world: str) -> None:
    """Where a database does not know its encoding, whoever may connect can say any bytes."""
    with servers.start("postgresql", "-c", "fsync=off") as server:
        with psycopg.connect(server.url, autocommit=True) as admin:
            admin.execute("CREATE DATABASE bytes ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
        url = server.url.removesuffix("postgres") + "bytes"
        with psycopg.connect(url, autocommit=True) as admin, holdfast.connect(url) as locks:
            lease = locks.lock("x", ttl=60).acquire()
            ears = "SELECT pid FROM pg_stat_activity WHERE query LIKE '%LISTEN %' AND pid <> pg_backend_pid()"

            def ring() -> None:
                while not (before := admin.execute(ears).fetchall()):
                    pass
                admin.execute(r"SELECT pg_notify('holdfast_watch_holdfast', E'\xff\xfe')")
                # Both are told in one go, in this order: who has heard the release has outlived the other.
                rung.append(before)
                lease.release()

            rung: list[object] = []
            ringing = threading.Thread(target=ring)
            ringing.start()
            if world == "threads":
                with holdfast.connect(url) as others, others.lock("x", ttl=60, timeout=30):
                    after = admin.execute(ears).fetchall()
            else:
                after = asyncio.run(_ears_of_a_waiter(url, admin, ears))
            ringing.join()
            assert rung == [after]


async def _ears_of_a_waiter(url: str, admin: psycopg.Connection[Any], ears: Any) -> list[tuple[Any, ...]]:
    async with holdfast.aio.connect(url) as locks, locks.lock("x", ttl=60, timeout=30):
        return admin.execute(ears).fetchall()
