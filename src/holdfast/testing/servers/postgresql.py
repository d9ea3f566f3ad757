"""PostgreSQL, and PgBouncer before it."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Mapping
from pathlib import Path

from holdfast.testing.ports import LOOPBACK
from holdfast.testing.servers import wire
from holdfast.testing.servers.base import Server
from holdfast.testing.servers.needs import POSTGRESQL_NEW
from holdfast.testing.servers.watcher import release_shared_memory


class _Speaker(Server):
    """Whatever speaks PostgreSQL's protocol."""

    scheme = "postgresql"
    account = "postgres"  # it refuses to run as root
    quit_signal = signal.SIGINT  # "fast": do not wait for clients to leave

    @property
    def url(self) -> str:
        return f"postgresql://postgres@{LOOPBACK}:{self.port}/postgres"

    def answers(self) -> bool:
        return self.query("SELECT 1") == [("1",)]

    def query(self, text: str) -> list[tuple[str, ...]]:
        """One simple query, on a connection of its own."""
        return wire.postgresql(self.address, text)


class PostgreSQL(_Speaker):
    """Everybody on loopback is let in as user postgres."""

    prepared_once = True

    def prepare(self) -> None:
        initdb = str(Path(self.program).with_name("initdb"))
        self.run_tool([initdb, "-D", str(self.data), "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync"])

    def command(self) -> list[str]:
        settings = {
            "listen_addresses": LOOPBACK,
            "port": self.port,
            "unix_socket_directories": self.data,
            # Shared memory as files in the data folder: kill -9 would leave the other kinds behind in /dev/shm.
            "dynamic_shared_memory_type": "mmap",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [self.program, "-D", str(self.data), *options, *self.extra]

    def _discard(self) -> None:
        release_shared_memory(self.data)
        super()._discard()


class UnpackedPostgreSQL(PostgreSQL):
    """From the cache, where its own account cannot read: a copy beside its data can be."""

    def prepare(self) -> None:
        program, cache = Path(self.program), POSTGRESQL_NEW.folder
        if self.user and program.is_relative_to(cache):
            shutil.copytree(cache, self.folder / "installed", symlinks=True)
            (self.folder / "installed").chmod(0o755)
            self.program = str(self.folder / "installed" / program.relative_to(cache))
        for each in Path(self.program).parent.iterdir():
            each.chmod(0o755)
        super().prepare()


class PgBouncer(_Speaker):
    """A pooler in transaction mode, with a PostgreSQL of its own behind it (`.postgresql`).

    `extra` are further lines of its configuration, such as `pool_mode = session`.
    """

    def __init__(self, kind: str, extra: tuple[str, ...] = (), environ: Mapping[str, str] | None = None) -> None:
        super().__init__(kind, extra, environ)
        self.postgresql = PostgreSQL("postgresql")

    def launch(self) -> None:
        if not self.postgresql.running:
            self.postgresql.start()
        super().launch()

    def prepare(self) -> None:
        lines = [
            "[databases]",
            f"* = host={LOOPBACK} port={self.postgresql.port} user=postgres",
            "[pgbouncer]",
            f"listen_addr = {LOOPBACK}",
            f"listen_port = {self.port}",
            "unix_socket_dir =",
            "auth_type = any",
            "pool_mode = transaction",
            *self.extra,
            "",
        ]
        self.write(self.data / "pgbouncer.ini", "\n".join(lines))

    def command(self) -> list[str]:
        return [self.program, str(self.data / "pgbouncer.ini")]

    def stop(self) -> None:
        super().stop()
        self.postgresql.stop()
