"""The command `holdfast`: finds the subcommand, and turns what goes wrong into an exit code and one sentence.

Rule: a subcommand's module is imported when it is asked for. `holdfast run` stands in front of other people's commands,
so it may cost no more than three times `import sqlite3`, the bare price of the embedded store.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import TextIO

from ..errors import HoldfastError
from . import exits
from .options import COMMANDS, Options, Usage, parse
from .text import shown


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
    if options.command == "run":
        from .run import run

        return run(options)
    if options.command == "demo":
        from .demo import demo

        return demo(options)
    if options.command == "docs":
        from .docs import docs

        return docs(options)
    if options.command == "fence":
        from .fence import fence

        return fence(options)
    if options.command == "advise":
        from .advise import advise

        return advise(options)
    if options.command == "migrate":
        from .migrate import migrate

        return migrate(options)
    if options.command == "watch":
        from .following import watch

        return watch(options)
    if options.command == "completion":
        from .completion import script

        print(script(options.name))
        return exits.OK
    if options.command == "observe":
        from .observing import observe

        return observe(options)
    if options.command == "doctor":
        from .doctor import doctor

        return doctor(options)
    if options.command == "verify":
        from .verify import verify

        return verify(options)
    if options.command == "simulate":
        from .simulate import simulate

        return simulate(options)
    if options.command == "dashboard":
        from .dashboard import dashboard

        return dashboard(options)
    if options.command == "lab":
        from .lab import lab

        return lab(options)
    if options.command == "top":
        from .top import top

        return top(options)
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
