"""The command `holdfast`: finds the subcommand, and turns what goes wrong into an exit code and one sentence.

Rule: a subcommand's module is imported when it is asked for. `holdfast run` stands in front of other people's commands,
so it may cost no more than three times `import sqlite3`, the bare price of the embedded store.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from io import TextIOWrapper

from ..errors import HoldfastError
from . import exits
from .options import COMMANDS, Options, Usage, parse
from .text import shown


def main(words: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if words is None else words)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # it may be closed
            stream.reconfigure(errors="backslashreplace")
    try:
        return _dispatch(parse(words))
    except Usage as error:
        where = f" {error.command}" if error.command else ""
        return _fail(f"holdfast{where}: {error}\nSee: holdfast{where} --help")
    except HoldfastError as error:
        return _fail(f"holdfast: {shown(str(error))}")
    except BrokenPipeError:  # `holdfast ls | head -1`: nobody listens any more, and that is no error
        _mute()
        return exits.SIGNALLED + 13
    except KeyboardInterrupt:
        return exits.SIGNALLED + 2
    except OSError as error:
        return _fail(f"holdfast: {shown(str(error))}")
    except Exception:  # a fault of ours; Python's own exit code for it, 1, would pass for the command's
        import traceback

        traceback.print_exc()
        return exits.TROUBLE


def _dispatch(options: Options) -> int:
    if options.flag("version"):
        return _version(options)
    if options.flag("help") or not options.command:
        from .manual import page

        print(page(options.command))
        return exits.OK if options.flag("help") else exits.TROUBLE
    if any(options.get(key) is not None for key in ("url", "url_file", "database", "database_file")):
        from .passwords import collect

        collect(options)
    if options.command == "run":
        from .run import run

        return run(options)
    if options.command == "demo":
        from .demo import demo

        return demo(options)
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
    if options.command == "observe":
        from .observing import observe

        return observe(options)
    if options.command == "doctor":
        from .doctor import doctor

        return doctor(options)
    if options.command == "dashboard":
        from .dashboard import dashboard

        return dashboard(options)
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
    print(message, file=sys.stderr)
    return exits.TROUBLE


def _mute() -> None:
    """Python flushes standard output once more as it ends, and would complain of the broken pipe again."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


__all__ = ["COMMANDS", "main"]
