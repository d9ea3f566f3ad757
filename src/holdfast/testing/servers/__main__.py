"""`python -m holdfast.testing.servers install [KIND...]` and `... status`."""

from __future__ import annotations

import argparse
import os
import sys

from holdfast.testing.servers.install import InstallError, install
from holdfast.testing.servers.needs import KINDS, missing, needs

DEFAULT_KINDS = "HOLDFAST_SERVERS"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m holdfast.testing.servers", description="The real servers that holdfast is tested against."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, meaning in (("install", "install what is missing"), ("status", "tell what is there and what is missing")):
        command = commands.add_parser(name, help=meaning)
        command.add_argument(
            "kinds",
            nargs="*",
            metavar="KIND",
            help=f"{', '.join(KINDS)}; without any: those in the environment variable {DEFAULT_KINDS}, or all",
        )
        command.add_argument("--all", action="store_true", help="all kinds, whatever the environment says")
    chosen = parser.parse_args(arguments)
    try:
        kinds = KINDS if chosen.all else _kinds(chosen.kinds)
        return _install(kinds) if chosen.command == "install" else _status(kinds)
    except ValueError as error:
        parser.error(str(error))
    except InstallError as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _kinds(given: list[str]) -> tuple[str, ...]:
    kinds = tuple(given or os.environ.get(DEFAULT_KINDS, "").replace(",", " ").split() or KINDS)
    for kind in kinds:
        needs(kind)
    return kinds


def _install(kinds: tuple[str, ...]) -> int:
    install([need for absent in missing(kinds).values() for need in absent], lambda line: _say(line))
    _say(f"ready: {', '.join(kinds)}")
    return 0


def _status(kinds: tuple[str, ...]) -> int:
    absent = missing(kinds)
    for kind in kinds:
        for need in needs(kind):
            _say(f"{kind:<15} {'missing' if need in absent.get(kind, ()) else 'ready':<8} {need.find() or need}")
    return 1 if absent else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
