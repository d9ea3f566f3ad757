"""Every page under docs/start is followed as written, in an environment that had nothing, and ends in what it promises.

A page is a shell script: its `console` blocks are typed in, one after the other, into one shell, and must print what the page
says; a block that opens with `# path` is saved there before the next step. Only addresses differ: servers and ports are our own.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.testing import ports, servers

ROOT = Path(__file__).parent.parent
PAGES = {page.stem: page for page in sorted((ROOT / "docs" / "start").glob("*.md")) if page.stem != "index"}
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# ([\w./-]+\.\w+)(, at the end)?\n")
# How a page writes an address, and who serves it.
ADDRESSES = {
    "postgresql://shop@localhost:5432/shop": ("postgresql", "{url}"),
    "localhost:6379": ("redis", "127.0.0.1:{port}"),
}
STEP = "== step "
SECONDS = 240  # for a page: it installs packages


def script(text: str) -> tuple[str, list[str]]:
    """What to type, and what has to appear after each step."""
    typed = ["set -m"]  # jobs, as in the shell of a person
    expected: list[str] = []
    for number, (language, body) in enumerate(BLOCK.findall(text)):
        if language == "console":
            for step in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                command, *rest = step.splitlines()
                while rest and rest[0].startswith("> "):
                    command += "\n" + rest.pop(0)[2:]
                typed += [
                    f"echo {shlex.quote(STEP)}{len(expected)}",
                    command + (" || exit" if "pip install" in command else ""),
                ]
                expected.append("\n".join(rest))
        elif named := FILE.match(body):
            path = Path(named[1])
            end = f"END_OF_BLOCK_{number}"
            typed.append(f"mkdir -p {path.parent}; cat {'>>' if named[2] else '>'} {path} <<'{end}'\n{body}{end}")
        else:
            assert language == "text", f"a block that is neither typed nor saved:\n{body}"
    return "\n".join([*typed, ""]), expected


def printed(output: str, steps: int) -> list[str]:
    parts = re.split(rf"^{STEP}\d+\n", output, flags=re.MULTILINE)
    assert len(parts) == steps + 1, output
    return parts[1:]


def alike(text: str) -> list[str]:
    """Without what differs from run to run, and what a shell says of its jobs."""
    text = re.sub(r"^.*(Terminated|Done|Exit \d+|\[\d+\] \d+) .*\n|^\[\d+\].*\n", "", text, flags=re.MULTILINE)
    text = text.replace(f"{socket.gethostname()}/", "host/")
    text = re.sub(r"host/\d+", "host/PID", re.sub(r"\d{16}", "TOKEN", text))
    text = re.sub(r"\d+(\.\d+)? (ms|s)\b", "TIME", text)
    return [re.sub(r"\s+", " ", line).strip() for line in text.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment variables of somebody who has Python, this wheel to install, and nothing else."""
    pytest.importorskip("hatchling", reason="hatchling builds what is published; only the main environment has it")
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=ROOT, check=True)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", with_pip=True)
    # First of all: `pip install 'holdfast[redis]'` then adds what that needs to this one, whatever an index has by that name.
    subprocess.run([folder / "venv/bin/pip", "install", "-q", "--no-deps", "--no-index", wheel], check=True)
    # Where pip finds packages here is this machine's business.
    pips = re.compile(r"PIP_|SSL_|XDG_CONFIG_HOME|.*_proxy", re.IGNORECASE)
    return {
        **{key: value for key, value in os.environ.items() if pips.match(key)},
        "PATH": f"{folder}/venv/bin:/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PIP_QUIET": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


@pytest.fixture
def addresses(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """How the page writes an address → where it is here."""
    text = PAGES[request.node.callspec.params["page"]].read_text()
    with ExitStack() as running:
        port = running.enter_context(ports.ReservedPort()).number
        found = {":8000": f":{port}", "--port 8000": f"--port {port}"}
        for written, (kind, address) in ADDRESSES.items():
            if written in text:
                server = running.enter_context(servers.start(kind))
                found[written] = address.format(url=server.url, port=server.port)
        yield found


def follow(typed: str, folder: Path, environment: dict[str, str]) -> str:
    """What appears on the screen. The page has all of the folder to itself."""
    steps, screen = folder.with_suffix(".sh"), folder.with_suffix(".txt")
    steps.write_text(typed)
    with screen.open("w") as output:
        shell = subprocess.Popen(
            ["bash", str(steps)],
            cwd=folder,
            env={**environment, "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            shell.wait(timeout=SECONDS)
        finally:
            subprocess.run(
                ["pkill", "-KILL", "--session", str(shell.pid)], check=False
            )  # what it started, nobody else's
            shell.wait()
    return screen.read_text()


@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(name, marks=[pytest.mark.server] if any(one in page.read_text() for one in ADDRESSES) else [])
        for name, page in PAGES.items()
    ],
)
def test_a_page_ends_in_what_it_promises(
    page: str, bare: dict[str, str], addresses: dict[str, str], tmp_path: Path
) -> None:
    text = PAGES[page].read_text()
    for written, here in addresses.items():
        text = text.replace(written, here)
    typed, expected = script(text)
    output = follow(typed, tmp_path, bare)
    assert [alike(one) for one in printed(output, len(expected))] == [alike(one) for one in expected], output


def test_a_page_that_promises_something_else_is_found_out(tmp_path: Path) -> None:
    typed, expected = script("```console\n$ echo 2\n3\n```\n")
    output = follow(typed, tmp_path, {"PATH": "/usr/bin:/bin"})
    assert [alike(one) for one in printed(output, len(expected))] == [["2"]]
    assert [alike(one) for one in expected] == [["3"]]
