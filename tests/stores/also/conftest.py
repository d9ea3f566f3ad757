"""Each format with the servers that it needs, started when it is first asked for."""

from __future__ import annotations

import contextlib
import functools
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing import servers

from . import rivals
from .rivals import Format, Rival

FORMATS = ("redis-py", "python-redis-lock", "kazoo", "curator", "advisory", "shedlock", "shedlock-mysql", "holdfast")


@pytest.fixture(scope="session")
def server() -> Iterator[Callable[[str], Any]]:
    with contextlib.ExitStack() as running:

        @functools.cache
        def start(kind: str) -> Any:
            if kind == "curator":
                return rivals.Curator.compiled(Path(running.enter_context(tempfile.TemporaryDirectory())))
            return running.enter_context(servers.start(kind))

        yield start


def of(whose: str, server: Callable[[str], Any]) -> Format:
    if whose == "redis-py":
        url = server("redis").url
        return Format(f"redis-py+{url}?as=job:{{name}}", lambda: rivals.RedisPy(url))
    if whose == "python-redis-lock":
        url = server("redis").url
        return Format(f"python-redis-lock+{url}", lambda: rivals.RedisLock(url))
    if whose in {"kazoo", "curator"}:
        hosts = f"127.0.0.1:{server('zookeeper').port}"
        also = f"{whose}+zookeeper://{hosts}?as=/jobs/{{name}}"
        if whose == "kazoo":
            return Format(also, lambda: rivals.Kazoo(hosts))
        return Format(also, lambda: rivals.Curator(hosts, server("curator")))
    if whose == "advisory":
        url = server("postgresql").url
        return Format(f"advisory+{url}", lambda: rivals.Advisory(url))
    if whose == "shedlock":
        url = server("postgresql").url
        return Format(f"shedlock+{url}", lambda: rivals.ShedLock(url))
    if whose == "shedlock-mysql":
        url = server("mariadb").url
        return Format(f"shedlock+{url}", lambda: rivals.ShedLockOnMySQL(url))
    url = f"memory://{uuid.uuid4().hex}"
    return Format(url, lambda: rivals.Holdfast(url))


@pytest.fixture(params=FORMATS)
def form(request: pytest.FixtureRequest, server: Callable[[str], Any]) -> Format:
    return of(request.param, server)


@pytest.fixture(params=FORMATS[:-1])
def remote(request: pytest.FixtureRequest, server: Callable[[str], Any]) -> Format:
    """On a server; all but two stores in the memory of one process."""
    return of(request.param, server)


@pytest.fixture
def remote_rival(remote: Format) -> Iterator[Rival]:
    one = remote.rival()
    yield one
    one.close()


@pytest.fixture
def rival(form: Format) -> Iterator[Rival]:
    one = form.rival()
    yield one
    one.close()


@pytest.fixture
def url() -> str:
    """The new store: in memory, since it is the old lock that is tried here."""
    return f"memory://{uuid.uuid4().hex}"
