"""Every Python example in the README and the docs runs as written."""

from __future__ import annotations

import contextlib
import functools
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.testing import servers
from holdfast.testing.servers.needs import cache_folder

ROOT = Path(__file__).parent.parent
EXAMPLE = re.compile(r"^( *)```python\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
START = ROOT / "docs" / "start"  # followed step by step by test_start.py
PAGES = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").glob("**/*.md")) if START not in page.parents)]
# What an example reads, who serves it, and how the address is written there.
SERVERS = {
    "POSTGRESQL_URL": ("postgresql", "{url}"),
    "MYSQL_URL": ("mariadb", "{url}"),
    "REDIS_URL": ("redis", "{url}"),
    "ETCD_URL": ("etcd", "http://127.0.0.1:{port}"),
    "ZOOKEEPER_HOSTS": ("zookeeper", "127.0.0.1:{port}"),
    "CONSUL_URL": ("consul", "{url}"),
    "S3_URL": ("seaweedfs", "{url}"),
}
# How an example writes an address as a reader has it, and who serves it here. Those of Redlock are three Redis.
ADDRESSES = {
    "localhost:6379": "redis",
    "localhost:6380": "redis",
    "localhost:6381": "redis",
    "app@localhost:5432/app": "postgresql",
    "app@localhost:3306/app": "mariadb",
    "localhost:2379": "etcd",
    "localhost:2181": "zookeeper",
    "localhost:8500": "consul",
}
ENDS_IN_LEASE_LOST = "force_release("


def examples() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for number, match in enumerate(EXAMPLE.finditer(page.read_text()), 1):
            indent = len(match[1])
            found.append(
                (
                    f"{page.relative_to(ROOT)}:{number}",
                    "".join(line[indent:] for line in match[2].splitlines(keepends=True)),
                )
            )
    return found


def needs(code: str) -> list[str]:
    return [variable for variable in SERVERS if variable in code]


def serves(code: str) -> bool:
    """Does it need a server, ours or one that it starts itself?"""
    return bool(needs(code)) or any(one in code for one in ADDRESSES) or "servers.start(" in code


@pytest.fixture(scope="module")
def urls() -> Iterator[Callable[[str], str]]:
    """Where a server is, by the variable or the address that examples have; each is started when it is first asked for."""
    with contextlib.ExitStack() as running:

        @functools.cache
        def url(name: str) -> str:
            kind, address = SERVERS[name] if name in SERVERS else (ADDRESSES[name], "{place}")
            server = running.enter_context(servers.start(kind))
            return address.format(url=server.url, port=server.port, place=server.url.partition("://")[2])

        yield url


@pytest.mark.parametrize(
    "code",
    [pytest.param(code, id=name, marks=[pytest.mark.server] if serves(code) else []) for name, code in examples()],
)
def test_an_example_runs_as_written(code: str, tmp_path: Path, urls: Callable[[str], str]) -> None:
    variables = {variable: urls(variable) for variable in needs(code)}
    for address in [one for one in ADDRESSES if one in code]:
        code = code.replace(address, urls(address))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "XDG_STATE_HOME": str(tmp_path / "state"),
            "XDG_CACHE_HOME": str(cache_folder().parents[1]),  # where the servers are
            **variables,
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    if ENDS_IN_LEASE_LOST in code:
        assert "LeaseLost: lost the lock 'report'" in done.stderr
    else:
        assert done.returncode == 0, done.stderr


def test_there_are_examples_to_run() -> None:
    assert len(examples()) > 8
