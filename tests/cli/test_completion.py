"""Completion in the shells themselves. zsh and fish are left out, with a word, where they are not installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from .conftest import HOLDFAST
from .screen import Screen

LINES = ("holdfast ru", "holdfast run --no", "holdfast observe al", "holdfast run x -- realpat")
WHOLE = ["run", "--no-wait", "alerts", "realpath"]

BASH = """
. "$1"; shift
for line; do
    COMP_WORDS=($line); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
    _holdfast
    printf '%s\\n' "${COMPREPLY[@]}" | sort -u | head -n 1
done
"""
FISH = """
source $argv[1]
for line in $argv[2..-1]
    complete -C $line | string replace -r '\\t.*' '' | sort -u | head -n 1
end
"""


@pytest.fixture
def script(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """In a folder that can be in zsh's fpath."""
    shell = request.param
    if shutil.which(shell) is None:
        pytest.skip(f"NO {shell} HERE: apt install {shell}")
    file = tmp_path / "_holdfast"
    file.write_text(subprocess.run([HOLDFAST, "completion", shell], capture_output=True, text=True, check=True).stdout)
    return file


@pytest.mark.parametrize(
    ("script", "line"), [("bash", ["bash", "-c", BASH, "bash"]), ("fish", ["fish", "-c", FISH])], indirect=["script"]
)
def test_words_options_and_commands_are_completed(script: Path, line: list[str]) -> None:
    done = subprocess.run([*line, str(script), *LINES], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout.splitlines(), done.stderr) == (WHOLE, "")


@pytest.mark.parametrize("script", ["zsh"], indirect=True)
def test_the_first_tab_in_zsh_is_answered_too(script: Path) -> None:
    """By keys, in a shell where the file in fpath has not been loaded yet."""
    screen = Screen(["zsh", "-f", "-i"], {"PATH": "/usr/bin:/bin", "HOME": str(script.parent)})
    screen.type(f"PS1='> '; fpath=({script.parent} $fpath); autoload -Uz compinit; compinit -u -D; print be''gun\n")
    screen.expect("begun")
    screen.type("holdfast observe al\t")
    screen.expect("alerts")
    (script.parent / "secret-url").touch()
    screen.type("\x15holdfast run --url-file ~/sec\t")
    screen.expect("secret-url")
    screen.type("\x15exit\n")
    assert screen.end() == 0


@pytest.mark.parametrize("script", ["bash"], indirect=True)
def test_files_are_completed_too_in_bash(script: Path) -> None:
    (script.parent / "secret-url").touch()
    screen = Screen(["bash", "--norc", "--noprofile", "-i"], {"PATH": "/usr/bin:/bin", "HOME": str(script.parent)})
    screen.type(f"PS1='now: '; . {script}; holdfast() {{ echo \"$@\"; }}; echo be''gun\n")
    screen.expect("begun[^:]*now: ")  # only then does it read keys
    screen.type("holdfast run --url-file ~/sec\t\n")
    screen.expect("--url-file .*/secret-url")
    screen.type("exit\n")
    assert screen.end() == 0
