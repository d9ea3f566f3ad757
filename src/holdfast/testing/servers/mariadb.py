"""MariaDB with one empty database, `holdfast`."""

from __future__ import annotations

from holdfast.testing.ports import LOOPBACK
from holdfast.testing.servers import wire
from holdfast.testing.servers.base import Server


class MariaDB(Server):
    """User root, without a password."""

    scheme = "mysql"
    account = "mysql"  # it refuses to run as root
    prepared_once = True

    def prepare(self) -> None:
        self.run_tool(
            [
                "mariadb-install-db",
                "--no-defaults",
                f"--datadir={self.data}",
                f"--tmpdir={self.data}",  # several at once trip over each other's files in a common one
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ]
        )
        self.write(self.data / "init.sql", "CREATE DATABASE IF NOT EXISTS holdfast;\n")

    def command(self) -> list[str]:
        return [
            self.program,
            "--no-defaults",
            f"--datadir={self.data}",
            f"--tmpdir={self.data}",
            f"--bind-address={LOOPBACK}",
            f"--port={self.port}",
            f"--socket={self.socket}",
            f"--pid-file={self.data / 'pid'}",
            f"--init-file={self.data / 'init.sql'}",
            "--skip-name-resolve",
            *self.extra,
        ]

    @property
    def socket(self) -> str:
        return str(self.data / "s.sock")

    @property
    def url(self) -> str:
        return f"mysql://root@{LOOPBACK}:{self.port}/holdfast"

    def answers(self) -> bool:
        return wire.mariadb_greets(self.address)
