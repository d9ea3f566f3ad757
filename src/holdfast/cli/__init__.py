"""The command `holdfast`: finds the subcommand, and turns what goes wrong into an exit code and one sentence.

Rule: a subcommand's module is imported when it is asked for. `holdfast run` stands in front of other people's commands,
so it may cost no more than three times `import sqlite3`, the bare price of the embedded store.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import TextIO

from ..errors import HoldfastError
from . import exits
from .options import COMMANDS, Options, Usage, parse
from .text import shown

# Each has a function of the command's name. The commands that only ask a store something are all in `asking`.
_MODULES = {
    "run": "run",
    "demo": "demo",
    "fence": "fence",
    "advise": "advise",
    "migrate": "migrate",
    "watch": "following",
    "observe": "observing",
    "doctor": "doctor",
    "verify": "verify",
    "simulate": "simulate",
    "dashboard": "dashboard",
    "lab": "lab",
    "top": "top",
}


def main(words: Sequence[str] | None = None) -> int:
    # Closed by whoever started us, they are None: print() would then take standard output for standard error.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    code = _main(list(sys.argv[1:] if words is None else words))
    try:
        sys.stdout.flush()  # here: if Python finds out as it ends that nobody listens, it calls that 120
    except BrokenPipeError:
        _mute(sys.stdout)
        return code or exits.SIGNALLED + 13
    except OSError as error:  # a full disk, say
        _mute(sys.stdout)
        return code or _fail(f"holdfast: {error}")
    return code


def _main(words: list[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # it may be closed
            stream.reconfigure(errors="backslashreplace")
    try:
        return _dispatch(parse(words))
    except Usage as error:
        where = f" {error.command}" if error.command else ""
        return _fail(f"holdfast{where}: {error}\nSee: holdfast{where} --help")
    except HoldfastError as error:
        return _fail(f"holdfast: {error}")
    except BrokenPipeError:  # `holdfast ls | head -1`: nobody listens any more, and that is no error
        _mute(sys.stdout)
        return exits.SIGNALLED + 13
    except KeyboardInterrupt:
        return exits.SIGNALLED + 2
    except OSError as error:
        return _fail(f"holdfast: {error}")
    except Exception:  # a fault of ours; Python's own exit code for it, 1, would pass for the command's
        import traceback

        traceback.print_exc()
        return exits.TROUBLE


def _dispatch(options: Options) -> int:
    if options.flag("version") or (options.command == "version" and not options.flag("help")):
        return _version(options)
    if options.flag("help") or options.command in ("", "help"):
        from .manual import page

        print(page(options.name if options.command == "help" else options.command))
        return exits.OK if options.command or options.flag("help") else exits.TROUBLE
    if any(options.get(key) is not None for key in ("url", "url_file", "database", "database_file")):
        from .passwords import collect

        collect(options)
    if options.command in ("run", "demo") and not hasattr(os, "fork"):
        return _fail(
            f"holdfast {options.command}: it needs POSIX (fork and process groups), which this system does not have"
        )
    if options.command == "completion":
        from .completion import script

        print(script(options.name))
        return exits.OK
    if module := _MODULES.get(options.command):
        command: Callable[[Options], int] = getattr(import_module(f".{module}", __package__), options.command)
        return command(options)
    from . import asking

    return asking.COMMANDS[options.command](options)


def _version(options: Options) -> int:
    from .. import __version__

    if options.flag("json"):
        print(f'{{"holdfast": "{__version__}"}}')
    else:
        print(f"holdfast {__version__}")
    return exits.OK


def _fail(message: str) -> int:
    try:
        print(shown(message), file=sys.stderr, flush=True)
    except OSError:  # nobody listens there either: the exit code remains
        _mute(sys.stderr)
    return exits.TROUBLE


def _mute(stream: TextIO) -> None:
    """Python flushes its streams once more as it ends, and would complain again, and exit with 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


__all__ = ["COMMANDS", "main"]
