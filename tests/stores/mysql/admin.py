"""Somebody with all rights, beside the locks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pymysql

from holdfast.testing.servers.mariadb import MariaDB


class Admin:
    def __init__(self, server: MariaDB) -> None:
        self._server = server
        self._connect()

    def _connect(self) -> None:
        self._connection = pymysql.connect(
            host="127.0.0.1",
            port=self._server.port,
            user="root",
            database="holdfast",
            autocommit=True,
            ssl_disabled=True,
        )
        (self.id,) = self.run("SELECT CONNECTION_ID()")[0]

    def reconnect(self) -> None:
        self._connect()

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def kill_all(self) -> int:
        """Every connection but this one; those that had ended by themselves do not count."""
        killed = 0
        for (one,) in self.run(
            f"SELECT ID FROM information_schema.PROCESSLIST WHERE ID <> {self.id} AND COMMAND <> 'Daemon' "
            "AND USER <> 'system user'"
        ):
            try:
                self.run(f"KILL {one}")
                killed += 1
            except pymysql.err.MySQLError:
                continue
        return killed

    def close(self) -> None:
        self._connection.close()


def until(condition: Callable[[], Any], within: float = 20.0) -> None:
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "did not come true"
        time.sleep(0.005)
