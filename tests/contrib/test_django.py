"""A Django project with "holdfast.contrib.django": its own tests on several databases, and its commands as they are typed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.testing import servers
from holdfast.testing.servers.mariadb import MariaDB
from holdfast.testing.servers.postgresql import PgBouncer, PostgreSQL

PROJECT = Path(__file__).parent / "django_project"


class Project:
    """The project, with a database."""

    def __init__(self, database: dict[str, object], stores: dict[str, object] | None = None) -> None:
        self.environ = {key: value for key, value in os.environ.items() if not key.startswith(("HOLDFAST", "DJANGO"))}
        path = os.pathsep.join((str(PROJECT), str(Path(holdfast.__file__).parents[1])))
        self.environ |= {"SHOP_DATABASE": json.dumps(database), "PYTHONPATH": path, "PYTHONWARNINGS": "error"}
        if stores is not None:
            self.environ["SHOP_HOLDFAST"] = json.dumps(stores)

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "manage.py", *words],
            cwd=PROJECT,
            env=self.environ,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def manage(self, *words: str, code: int = 0) -> str:
        with self.start(*words) as process:
            told = process.communicate(timeout=100)[0]
        assert process.returncode == code, told
        return told


@pytest.fixture
def sqlite(tmp_path: Path) -> Project:
    return Project({"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "shop.db")})


@pytest.fixture(scope="module")
def pooler() -> Iterator[PgBouncer]:
    """In transaction mode."""
    with servers.start("pgbouncer") as server:
        yield server


@pytest.fixture(scope="module")
def postgresql(pooler: PgBouncer) -> PostgreSQL:
    """That behind the pooler, directly."""
    pooler.postgresql.query("ALTER SYSTEM SET fsync = off")
    pooler.postgresql.query("SELECT pg_reload_conf()")
    return pooler.postgresql


def on(server: PostgreSQL | PgBouncer, name: str = "postgres", **more: object) -> dict[str, object]:
    host, port = server.address
    return {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": host,
        "PORT": port,
        "USER": "postgres",
        "NAME": name,
        **more,
    }


def test_the_tests_of_the_project_pass_on_sqlite(sqlite: Project) -> None:
    assert "\nOK" in sqlite.manage("test", "shop")


@pytest.mark.server
def test_what_concerns_the_database_passes_on_postgresql(postgresql: PostgreSQL) -> None:
    project = Project(on(postgresql, CONN_MAX_AGE=60))
    assert "\nOK" in project.manage("test", "shop.tests.Tables", "shop.tests.Locks", "--noinput")


@pytest.fixture(scope="module")
def mariadb() -> Iterator[MariaDB]:
    with servers.start("mariadb") as server:
        yield server


def on_mariadb(server: MariaDB, name: str) -> dict[str, object]:
    host, port = server.address
    return {"ENGINE": "django.db.backends.mysql", "HOST": host, "PORT": port, "USER": "root", "NAME": name}


@pytest.mark.server
def test_what_concerns_the_database_passes_on_mariadb(mariadb: MariaDB) -> None:
    project = Project(on_mariadb(mariadb, "shop"))
    assert "\nOK" in project.manage("test", "shop.tests.Tables", "shop.tests.Locks", "--noinput")


@pytest.mark.server
def test_locks_are_in_the_mysql_that_django_reaches_through_pymysql_under_the_name_of_mysqlclient(
    mariadb: MariaDB,
) -> None:
    """By install_as_MySQLdb(), which gives PyMySQL's modules a second life, with errors of their own."""
    project = Project(on_mariadb(mariadb, "holdfast"))
    project.manage("migrate", "-v", "0")
    assert "no issues" in project.manage("check", "--database", "default")
    host, port = mariadb.address
    with holdfast.connect(f"mysql://root@{host}:{port}/holdfast") as locks, locks.lock("nightly"):
        assert "could not get 'nightly' at once: held by" in project.manage("once", "nightly", "--", "work")


def test_tests_without_migrations_have_fences_too(sqlite: Project) -> None:
    database = json.loads(sqlite.environ["SHOP_DATABASE"]) | {"TEST": {"MIGRATE": False}}
    sqlite.environ["SHOP_DATABASE"] = json.dumps(database)
    assert "\nOK" in sqlite.manage("test", "shop.tests.Tables", "shop.tests.Locks")


@pytest.mark.server
def test_asynchronous_views_have_a_loop_each_under_wsgi_and_wait_for_each_other_all_the_same(
    postgresql: PostgreSQL,
) -> None:
    postgresql.query("CREATE DATABASE loops")
    project = Project(on(postgresql, "loops"))
    project.manage("migrate", "-v", "0")
    assert "all 40 came and went" in project.manage("shell", "-v", "0", "-c", "import shop.many_loops")


def test_a_command_runs_once_and_ends_as_it_ended(sqlite: Project, tmp_path: Path) -> None:
    with holdfast.connect(f"sqlite://{tmp_path / 'shop.db.locks'}") as locks:
        told = sqlite.manage("once", "-w", "60", "nightly", "--", "work", "--code", "3", code=3)
        assert "working under nightly True" in told
        with locks.lock("nightly"):
            told = sqlite.manage("once", "nightly", "--", "work")
            assert "could not get 'nightly' at once: held by" in told
            assert "working" not in told
            sqlite.manage("once", "-E", "75", "nightly", "--", "work", code=75)


@pytest.mark.server
def test_replicas_migrate_one_after_the_other(postgresql: PostgreSQL) -> None:
    postgresql.query("CREATE DATABASE replicas")
    project = Project(on(postgresql, "replicas"))
    host, port = postgresql.address
    with holdfast.connect(f"postgresql://postgres@{host}:{port}/replicas") as locks:
        with locks.lock("django:migrate:default") as lease:
            assert "could not get" in project.manage("migrate", "--turn", "0.1", code=75)
            replicas = [project.start("migrate", "-v", "0") for _ in range(2)]
            for process in replicas:
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(0.3)
            lease.check()
        told = [process.communicate(timeout=100)[0] for process in replicas]
        assert [process.returncode for process in replicas] == [0, 0], told
        assert locks.names() == []
    assert "no issues" in project.manage("check", "--database", "default")


@pytest.mark.server
def test_session_locks_behind_a_pooler_and_tables_that_cannot_be_made_are_found_by_check(
    pooler: PgBouncer, postgresql: PostgreSQL
) -> None:
    postgresql.query("CREATE ROLE lowly LOGIN")
    postgresql.query("CREATE DATABASE bare")
    host, port = postgresql.address
    bare = {"URL": f"postgresql://lowly@{host}:{port}/bare"}
    project = Project(on(pooler), {"default": {"OPTIONS": {"mode": "session"}}, "bare": bare})
    told = project.manage("check", "--database", "default", code=1)
    assert re.search(r"\(holdfast.E003\) The store 'default': a pooler at", told)
    assert re.search(r"\(holdfast.E003\) The store 'bare': .* may not create it", told)
