"""One server of each kind for all tests of fenced storage, started when it is first asked for."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest

from holdfast.testing import servers


@pytest.fixture(scope="session")
def sqlite_file() -> Iterator[str]:
    """In memory where there is such a folder: here, too, nobody pulls the plug."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        yield os.path.join(folder, "fenced.db")


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The URL. What outlives a power cut is not the question here, so it need not wait for the disk."""
    with servers.start("postgresql", "-c", "fsync=off", "-c", "synchronous_commit=off") as server:
        yield server.url


@pytest.fixture(scope="session")
def mariadb() -> Iterator[str]:
    with servers.start("mariadb", "--innodb-flush-log-at-trx-commit=0") as server:
        yield server.url


@pytest.fixture(scope="session")
def mysql() -> Iterator[str]:
    """MySQL itself, where it differs."""
    with servers.start("mysql", "--innodb-flush-log-at-trx-commit=0") as server:
        yield server.url


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    with servers.start("redis") as server:
        yield server.url


@pytest.fixture(scope="session")
def etcd_url() -> Iterator[str]:
    """etcd waits for the disk at every write; on a disk in memory it need not."""
    with servers.start("etcd", "--unsafe-no-fsync") as server:
        yield f"http://127.0.0.1:{server.port}"


@pytest.fixture(scope="session")
def zookeeper_hosts() -> Iterator[str]:
    with servers.start("zookeeper", "forceSync=no") as server:
        yield f"127.0.0.1:{server.port}"


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[str]:
    with servers.start("seaweedfs") as server:
        yield server.url
