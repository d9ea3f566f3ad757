"""A password comes from a file or the environment; on the command line it is warned of, and the command is not given it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from .conftest import Commands

URL = "redis://:hunter2@127.0.0.1:1"


def test_the_url_is_read_from_a_file(run: Commands, tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text(f"{run.url}\n")
    job = run.hold("backup")
    done = run("ls", "--url-file", str(file), HOLDFAST_URL="sqlite:///elsewhere/x.db")
    assert "backup" in done.stdout
    assert done.stderr == ""
    job.type("\n")


def test_a_file_that_others_may_read_is_warned_of_if_it_holds_a_password(run: Commands, tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text(URL)
    file.chmod(0o644)
    assert "others may read" in run("ls", "--url-file", str(file)).stderr
    file.chmod(0o600)
    assert "others may read" not in run("ls", "--url-file", str(file)).stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "cannot be read: No such file"),
        ("", "one URL"),
        ("a://b\nc://hunter2@d", "one URL"),
        ("\udcff", "no text"),
    ],
)
def test_a_file_that_holds_no_url_is_refused(run: Commands, tmp_path: Path, text: str | None, says: str) -> None:
    file = tmp_path / "url"
    if text is not None:
        file.write_bytes(text.encode(errors="surrogateescape"))
    done = run("ls", "--url-file", str(file))
    assert done.returncode == 125
    assert says in done.stderr
    assert "hunter2" not in done.stderr


def test_url_and_url_file_exclude_each_other(run: Commands, tmp_path: Path) -> None:
    assert "say one of them" in run("ls", "--url", run.url, "--url-file", "x").stderr


@pytest.mark.parametrize("words", [("ls", "--url", URL), ("run", "x", "--url", URL, "--", "true")])
def test_a_password_on_the_command_line_is_warned_of_once(run: Commands, words: tuple[str, ...]) -> None:
    errors = run(*words).stderr
    assert errors.count("all users of this machine can see") == 1
    assert "--url-file FILE or HOLDFAST_URL" in errors
    assert "hunter2" not in errors


def test_no_password_no_warning(run: Commands) -> None:
    assert run("ls", "--url", run.url).stderr == "No locks are in use.\n"
    assert "warning" not in run("ls", HOLDFAST_URL=URL).stderr


def test_the_command_is_not_given_the_url_of_the_store(run: Commands) -> None:
    assert run.url not in run("run", "x", "--", "env").stdout


def test_the_command_is_not_given_the_token_of_the_dashboard_unless_that_is_said(run: Commands) -> None:
    secret = {"HOLDFAST_DASHBOARD_TOKEN": "hunter2", "HOLDFAST_OBSERVE": ""}
    told = run("run", "x", "--", "env", **secret).stdout
    assert "hunter2" not in told
    assert "HOLDFAST_DASHBOARD_TOKEN" not in told
    assert "HOLDFAST_OBSERVE=\n" in told  # what is no secret is not taken away
    assert "HOLDFAST_DASHBOARD_TOKEN=hunter2\n" in run("run", "x", "--pass-url", "--", "env", **secret).stdout


def test_a_command_that_asks_for_the_url_all_the_same_is_told_why_it_is_not_there(run: Commands) -> None:
    done = run("run", "x", "--", "holdfast", "ls", PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert done.returncode == 125
    assert "holdfast run --pass-url" in done.stderr


def test_the_command_is_given_the_url_when_that_is_said(run: Commands) -> None:
    assert f"HOLDFAST_URL={run.url}\n" in run("run", "x", "--pass-url", "--", "env").stdout


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hunter2%zz@127.0.0.1:1/db",
        "postgresql://u:hun@hunter2@127.0.0.1:1/db",
        "mysql://u:hun/hunter2@127.0.0.1:1/db",
        "mysql://u:hunter2#x@127.0.0.1:1/db",
        "mysql://u:x[hunter2]@127.0.0.1:1/db",
        "mysql://u:x?hunter2@127.0.0.1:1/db",
    ],
)
def test_fence_shows_nothing_of_the_password_of_its_database(run: Commands, tmp_path: Path, url: str) -> None:
    file = tmp_path / "url"
    file.write_text(url)
    for words in (("--database", url), ("--database-file", str(file))):
        done = run("fence", "install", "--table", "t", "--apply", *words)
        assert done.returncode == 125
        assert "hunter2" not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
