"""`holdfast top`: who holds what, live, in a terminal. Looks as the dashboard does, with the same threads and the same board."""

from __future__ import annotations

import logging
import sys
from time import monotonic

from ...dashboard.board import Board
from ...dashboard.history import History
from ...dashboard.looking import Looking, named
from ...errors import Misuse
from .. import exits
from ..options import Options
from ..stores import several

CLOSING = 3.0  # seconds that a store which does not answer may hold up the end


def top(options: Options) -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Misuse("top needs a terminal; elsewhere, `holdfast ls` and `holdfast watch` print the same")
    try:
        from .app import Top
    except ImportError as error:
        raise Misuse(f"top needs textual ({error}): pip install 'holdfast[top]'") from error
    # What is alarming is on the screen; as a line of the log it would be written across it.
    logging.getLogger("holdfast").addHandler(logging.NullHandler())
    board, history = Board(), History()
    stores = named(several(options))
    interval = max(0.05, options.get("interval", 1.0))
    looking = {store: Looking(store, url, board, history, interval, label="holdfast top") for store, url in stores}
    try:
        Top(board, history, looking, prefix=options.name).run()
    finally:
        give_up = monotonic() + CLOSING
        for one in looking.values():
            one.close(max(0.0, give_up - monotonic()))
    return exits.OK
