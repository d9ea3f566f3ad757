"""Alembic with one line in env.py: it waits for its turn."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, inspect
from sqlalchemy.engine import make_url

import holdfast
from holdfast import Misuse
from holdfast.contrib.alembic import url_of

ENV = """
from alembic import context
from sqlalchemy import create_engine

from holdfast.contrib.alembic import in_turn

engine = create_engine(context.config.get_main_option("sqlalchemy.url"))
with engine.connect() as connection:
    context.configure(connection=connection)
    with in_turn(connection), context.begin_transaction():
        context.run_migrations()
engine.dispose()
"""
REVISION = """
import sqlalchemy as sa
from alembic import op

revision, down_revision = "1", None

def upgrade():
    op.create_table("orders", sa.Column("id", sa.Integer, primary_key=True))
"""


def test_an_upgrade_waits_for_its_turn(tmp_path: Path) -> None:
    (tmp_path / "versions").mkdir()
    (tmp_path / "env.py").write_text(ENV)
    (tmp_path / "versions" / "1.py").write_text(REVISION)
    database = tmp_path / "shop.db"
    config = Config()
    config.set_main_option("script_location", str(tmp_path))
    config.set_main_option("path_separator", "os")
    config.set_main_option("sqlalchemy.url", f"sqlite:///{database}")
    engine = create_engine(f"sqlite:///{database}")
    upgrade = threading.Thread(target=command.upgrade, args=(config, "head"))
    with holdfast.connect(url_of(make_url(f"sqlite:///{database}"))) as locks:
        with locks.lock("alembic"):
            upgrade.start()
            give_up = time.monotonic() + 30
            while not locks.inspect("alembic").waiters:
                assert upgrade.is_alive()
                assert time.monotonic() < give_up
                time.sleep(0.01)
            assert not inspect(engine).has_table("orders")
        upgrade.join(60)
        assert inspect(engine).has_table("orders")
        command.upgrade(config, "head")  # the next replica finds nothing to do
        assert locks.names() == []
    engine.dispose()


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (
            "postgresql+psycopg://u%40x:p%2Fw@db:5433/app?sslmode=require&options=-c",
            "postgresql://u%40x:p%2Fw@db:5433/app?sslmode=require",
        ),
        ("postgresql+asyncpg:///app?host=/run/pg", "postgresql:///app?host=%2Frun%2Fpg"),
        ("mysql+pymysql://u@db/app?charset=utf8mb4", "mysql://u@db/app"),
        ("mariadb+pymysql://u@/app?unix_socket=/run/my.sock", "mysql://u@/app?socket=%2Frun%2Fmy.sock"),
        ("sqlite:////srv/shop.db", "sqlite:///srv/shop.db.locks"),
        ("sqlite://", "memory://beside"),
    ],
)
def test_the_store_is_in_the_database_that_is_migrated(theirs: str, ours: str) -> None:
    found = url_of(make_url(theirs))
    assert found == ours
    assert "p%2Fw" not in repr(found)


def test_a_database_that_can_have_no_locks_is_refused() -> None:
    with pytest.raises(Misuse, match="oracle"):
        url_of(make_url("oracle://u@db/app"))
