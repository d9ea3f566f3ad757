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
from holdfast.testing.servers.postgresql import PgBouncer, PostgreSQL

PROJECT = Path(__file__).parent / "django_project"


class Project:
    """The project, with a database."""

    def __init__(self, database: dict[str, object], stores: dict[str, object] | None = None) -> None:
        self.environ = {key: value for key, value in os.environ.items() if not key.startswith(("HOLDFAST", "DJANGO"))}
        self.environ |= {"SHOP_DATABASE": json.dumps(database), "PYTHONPATH": str(PROJECT), "PYTHONWARNINGS": "error"}
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


@pytest.mark.server
def test_what_concerns_the_database_passes_on_mariadb() -> None:
    with servers.start("mariadb") as server:
        host, port = server.address
        login = {"HOST": host, "PORT": port, "USER": "root", "NAME": "shop"}
        project = Project({"ENGINE": "django.db.backends.mysql", **login})
        assert "\nOK" in project.manage("test", "shop.tests.Tables", "shop.tests.Locks", "--noinput")


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
