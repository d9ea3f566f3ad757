"""MySQL with one empty database, `holdfast`, out of a tree of its own."""

from __future__ import annotations

from pathlib import Path

from holdfast.testing.servers import wire
from holdfast.testing.servers.base import Server
from holdfast.testing.servers.needs import MYSQL

_INIT = """\
CREATE DATABASE IF NOT EXISTS holdfast;
CREATE USER IF NOT EXISTS 'root'@'%';
GRANT ALL ON *.* TO 'root'@'%' WITH GRANT OPTION;
"""


class MySQL(Server):
    """User root, without a password."""

    scheme = "mysql"

    def prepare(self) -> None:
        self.run_tool([*self._mysqld(), "--initialize-insecure"])
        self.write(self.folder / "init.sql", _INIT)

    def command(self) -> list[str]:
        return [
            *self._mysqld(),
            f"--bind-address={self.host}",
            f"--port={self.port}",
            f"--socket={self.folder / 's.sock'}",
            f"--pid-file={self.folder / 'pid'}",
            f"--init-file={self.folder / 'init.sql'}",
            "--secure-file-priv=NULL",
            "--mysqlx=OFF",
            "--skip-name-resolve",
            *self.extra,
        ]

    def _mysqld(self) -> list[str]:
        usr = Path(self.program).parents[1]
        return [
            *MYSQL.started(Path(self.program)),
            "--no-defaults",
            "--user=root",
            f"--datadir={self.data}",
            f"--basedir={usr}",
            f"--lc-messages-dir={usr / 'share/mysql'}",
        ]

    @property
    def url(self) -> str:
        return f"mysql://root@{self.host}:{self.port}/holdfast"

    def answers(self) -> bool:
        return wire.mariadb_greets(self.address)
