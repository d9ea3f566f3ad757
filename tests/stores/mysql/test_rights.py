"""Who may do what; and URLs, schemas and versions that are wrong."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pymysql
import pytest

import holdfast
from holdfast.errors import Misuse, Unavailable, Unsupported
from holdfast.stores.mysql.conversation import check_version
from holdfast.testing.servers.mariadb import MariaDB

from .admin import Admin, until

pytestmark = pytest.mark.server


@pytest.fixture
def empty(admin: Admin) -> Iterator[str]:
    admin.run("CREATE OR REPLACE DATABASE small")
    for user in ("app", "other"):
        admin.run(f"CREATE OR REPLACE USER {user}@'%' IDENTIFIED BY 'geheim'")
        admin.run(f"GRANT EXECUTE ON small.* TO {user}@'%'")
    yield "small"
    admin.run("DROP DATABASE small")


def run_script(mariadb: MariaDB, database: str) -> None:
    """As an administrator would: with the client that comes with the server."""
    migrate = [sys.executable, "-m", "holdfast", "migrate", "--sql", "--url", f"mariadb://nowhere/{database}"]
    printed = subprocess.run(migrate, check=True, stdout=subprocess.PIPE, timeout=30).stdout
    command = ["mariadb", "--no-defaults", "-h127.0.0.1", f"-P{mariadb.port}", "-uroot", database]
    subprocess.run(command, input=printed, check=True, timeout=30)


def place(mariadb: MariaDB, user: str, database: str = "small", password: str = "geheim") -> str:
    return f"mysql://{user}:{password}@127.0.0.1:{mariadb.port}/{database}"


def test_who_may_not_create_is_told_what_to_do(mariadb: MariaDB, empty: str) -> None:
    with holdfast.connect(place(mariadb, "app")) as locks, pytest.raises(Misuse) as refused:
        locks.lock("x").acquire(timeout=0)
    assert "holdfast migrate --sql" in str(refused.value)
    assert "GRANT EXECUTE ON `small`.*" in str(refused.value)
    assert "geheim" not in str(refused.value)


def test_with_an_administrators_script_execute_is_enough_and_every_user_can_ring_every_other(
    mariadb: MariaDB, empty: str
) -> None:
    run_script(mariadb, empty)
    run_script(mariadb, empty)  # again: nothing changes
    with holdfast.connect(place(mariadb, "app")) as locks, holdfast.connect(place(mariadb, "other")) as others:
        lease = locks.lock("x", ttl=60).acquire()
        got: list[float] = []

        def wait() -> None:
            others.lock("x", ttl=60).acquire(timeout=20).release()
            got.append(time.monotonic())

        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: locks.inspect("x").waiters)
        time.sleep(0.1)
        released = time.monotonic()
        lease.release()
        thread.join(20)
        assert got[0] - released < 5
        assert locks.names() == []


def test_tables_of_a_newer_version_are_refused(mariadb: MariaDB, empty: str, admin: Admin) -> None:
    url = f"mysql://root@127.0.0.1:{mariadb.port}/small"
    with holdfast.connect(url) as locks:
        locks.lock("x").acquire().release()
    admin.run("UPDATE small.holdfast_meta SET version = 2")
    admin.run("DROP PROCEDURE small.holdfast_claim_1")
    with holdfast.connect(url) as locks, pytest.raises(Misuse, match="newer holdfast"):
        locks.lock("x").acquire(timeout=0)


def test_a_read_only_server_is_unavailable(mariadb: MariaDB, empty: str, admin: Admin) -> None:
    run_script(mariadb, empty)
    admin.run("SET GLOBAL read_only = 1")
    try:
        admin.run("CREATE OR REPLACE USER maker@'%' IDENTIFIED BY 'geheim'")
        admin.run("GRANT ALL ON small.* TO maker@'%'")
        for body in ("holdfast_claim_1", "holdfast_sweep_1"):
            admin.run(f"UPDATE mysql.proc SET definer = 'maker@%' WHERE db = 'small' AND name = '{body}'")
        with holdfast.connect(place(mariadb, "maker")) as locks, pytest.raises(Unavailable, match="read only"):
            locks.lock("x").acquire(timeout=0)
    finally:
        admin.run("SET GLOBAL read_only = 0")


@pytest.mark.parametrize(
    ("user", "database", "password", "said"),
    [("app", "small", "falsch", "refuses the login"), ("root", "nowhere", "", "no such database")],
)
def test_a_wrong_login_or_database_is_told_without_the_password(
    mariadb: MariaDB, empty: str, user: str, database: str, password: str, said: str
) -> None:
    with (
        holdfast.connect(place(mariadb, user, database, password)) as locks,
        pytest.raises(Misuse, match=said) as refused,
    ):
        locks.lock("x").acquire(timeout=0)
    assert "falsch" not in str(refused.value)


def test_nobody_there_is_unavailable() -> None:
    with (
        holdfast.connect("mysql://root:geheim@127.0.0.1:1/app?timeout=0.5") as locks,
        pytest.raises(Unavailable) as gone,
    ):
        locks.lock("x").acquire(timeout=0)
    assert "geheim" not in str(gone.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://root@localhost", "name the database"),
        ("mysql://root@localhost/", "name the database"),
        ("mysql://root@localhost:99999/a", "no port"),
        ("mysql://root@a,b/c", "takes one host"),
        ("mysql://root@localhost/a?mode=magic", "lease or session"),
        ("mysql://root@localhost/a?durability=none", "full or relaxed"),
        ("mysql://root@localhost/a?pool=0", "pool must be"),
        ("mysql://root@localhost/a?timeout=nan", "timeout must be"),
        ("mariadb://root@localhost/a?colour=red", "takes no option 'colour'"),
    ],
)
def test_a_bad_url_is_refused_at_once(url: str, said: str) -> None:
    with pytest.raises(Misuse, match=said):
        holdfast.connect(url)


def test_servers_that_are_too_old_are_refused() -> None:
    check_version("5.5.5-10.11.18-MariaDB-0+deb12u1", "here")
    check_version("8.0.36", "here")
    check_version("11.4.2-MariaDB", "here")
    for old in ("10.0.1-MariaDB", "5.5.5-10.5.9-MariaDB-log", "5.7.44-log", "5.6.2"):
        with pytest.raises(Unsupported, match="or later"):
            check_version(old, "here")


def test_who_may_only_execute_cannot_wipe_what_is_others(mariadb: MariaDB, empty: str, admin: Admin) -> None:
    run_script(mariadb, empty)
    with holdfast.connect(place(mariadb, "other")) as locks:
        lease = locks.lock("victim", ttl=60).acquire()
        eve = pymysql.connect(
            host="127.0.0.1", port=mariadb.port, user="app", password="geheim", database="small", autocommit=True
        )
        huge = 9 * 10**18
        with eve.cursor() as cursor:
            for number in range(12):
                for retention in (-(10**11), -huge, huge, 0):
                    for call in (
                        f"holdfast_claim_1('eve{number}', x'41', 'eve', 1000000, 1, 1, 1, 0, '', '', {retention})",
                        f"holdfast_claim_1('victim', x'41', 'eve', {-huge}, -5, -1, 0, 0, '', '', {retention})",
                        f"holdfast_release_1('victim', x'41', {retention})",
                        f"holdfast_watch_1('victim', x'42', 1, {retention}, 'x', {retention})",
                        f"holdfast_wanted_1('victim', x'41', {lease.token}, x'42', {retention}, 'x')",
                        f"holdfast_sweep_1({retention})",
                        "holdfast_heir_1('victim')",
                        f"holdfast_session_claim_1('eve', 'eve', '', -1, -1, {retention})",
                    ):
                        with contextlib.suppress(pymysql.err.MySQLError):
                            cursor.execute(f"CALL {call}")
                            while cursor.nextset():
                                pass
        eve.close()
        (holding,) = locks.inspect("victim").holders
        assert holding.token == lease.token
        assert lease.release()


@contextlib.contextmanager
def eve(mariadb: MariaDB) -> Iterator[pymysql.cursors.Cursor]:
    """Who may execute, and nothing else."""
    with (
        pymysql.connect(
            host="127.0.0.1", port=mariadb.port, user="app", password="geheim", database="small", autocommit=True
        ) as line,
        line.cursor() as cursor,
    ):
        yield cursor


@pytest.mark.parametrize("call", ["claim_1('', 'h', 'o', 1, 1, 1, 1, 0, {}, '', 1)", "watch_1('', 'h', 0, 1, '', 1)"])
def test_who_may_only_execute_does_not_get_at_what_the_sweep_remembers(mariadb: MariaDB, empty: str, call: str) -> None:
    """Else, with something there that is no name, nobody could be given a new one."""
    run_script(mariadb, empty)
    with eve(mariadb) as cursor, holdfast.connect(place(mariadb, "other")) as locks:
        with pytest.raises(pymysql.err.MySQLError, match="a lock has a name"):
            cursor.execute(f"CALL holdfast_{call.format('REPEAT(1, 1024)')}")
        with locks.lock("new").acquire(timeout=0):
            assert locks.names() == ["new"]


@pytest.mark.parametrize(
    "call",
    [
        "claim_1('x', 'h', NULL, 1000000, 1, 1, 1, 1, '', '', 1)",
        "watch_1('x', NULL, {}, 1000000, '', 1)",
        "evict_1('x', {}, NULL, 1)",
    ],
)
def test_what_fails_in_a_procedure_leaves_no_row_locked(mariadb: MariaDB, empty: str, call: str) -> None:
    run_script(mariadb, empty)
    url = f"{place(mariadb, 'other')}?timeout=2"
    with eve(mariadb) as cursor, holdfast.connect(url) as locks:
        lease = locks.lock("x", ttl=60).acquire(timeout=0)
        with pytest.raises(pymysql.err.MySQLError, match="cannot be null"):
            cursor.execute(f"CALL holdfast_{call.format(lease.token)}")
        assert lease.release()
