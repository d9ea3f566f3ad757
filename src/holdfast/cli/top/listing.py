"""The list of locks: only the rows in sight are drawn, so 5,000 names cost no more than twenty."""

from __future__ import annotations

import time
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from .rows import COLUMNS, Column, Lock, cells, columns, heads, least, ordered

Key = tuple[str, str]  # store and name
_URGENT = {"deadlock": "red", "in danger": "red", "starving": "yellow", "held unusually long": "yellow"}
_SORTS = ("", *(one.key for one in COLUMNS))


class Listing(Widget, can_focus=True):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "edge(0)", show=False),
        Binding("end", "edge(-1)", show=False),
        Binding("enter", "open", "Open"),
        Binding("s", "sort", "Sort"),
        Binding("r", "turn", "Reverse"),
        Binding("slash", "app.filter", "Filter", key_display="/"),
        Binding("q,f10", "app.quit", "Quit", key_display="q"),
    ]

    class Opened(Message):
        def __init__(self, key: Key) -> None:
            super().__init__()
            self.key = key

    def __init__(self, *, several: bool) -> None:
        super().__init__(id="listing")
        self.rows: list[Lock] = []
        self.behind: frozenset[str] = frozenset()  # stores that nobody has looked at for a while
        self.sort = ""
        self.falls = False
        self._several = several
        self._chosen: Key | None = None
        self._at = 0  # the row of what is chosen, and where it was if it is gone
        self._top = 0

    def put(self, locks: list[Lock]) -> None:
        self.rows = ordered(locks, self.sort, self.falls, time.time())
        keys = [_key(one) for one in self.rows]
        if self._chosen in keys:
            self._at = keys.index(self._chosen)
        self._settle()

    @property
    def chosen(self) -> Key | None:
        return self._chosen

    def _settle(self) -> None:
        """The chosen row exists, and is in sight."""
        self._at = min(max(self._at, 0), max(len(self.rows) - 1, 0))
        self._chosen = _key(self.rows[self._at]) if self.rows else None
        room = max(self.size.height - 1, 1)
        self._top = min(max(self._top, self._at - room + 1), self._at, max(len(self.rows) - room, 0))
        self.refresh()

    # ---- keys and mouse

    def action_move(self, by: int) -> None:
        self._at += by
        self._settle()

    def action_page(self, by: int) -> None:
        self.action_move(by * max(self.size.height - 2, 1))

    def action_edge(self, end: int) -> None:
        self._at = len(self.rows) if end else 0
        self._settle()

    def action_open(self) -> None:
        if self._chosen is not None:
            self.post_message(self.Opened(self._chosen))

    def action_sort(self) -> None:
        shown = ["", *(column.key for column, _ in self._room())]
        self.sort_by(shown[(shown.index(self.sort) + 1) % len(shown)] if self.sort in shown else "")

    def action_turn(self) -> None:
        self.falls = not self.falls
        self.put(self.rows)

    def sort_by(self, key: str) -> None:
        self.sort = key
        self.falls = next((one.falls for one in COLUMNS if one.key == key), False)
        self.put(self.rows)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.action_move(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.action_move(-3)

    def on_click(self, event: events.Click) -> None:
        if event.y == 0:
            self._head_clicked(event.x)
        elif self._top + event.y - 1 < len(self.rows):
            self._at = self._top + event.y - 1
            self._settle()
            if event.chain == 2:
                self.action_open()

    def _head_clicked(self, x: int) -> None:
        for column, width in self._room():
            if x <= width:
                self.action_turn() if column.key == self.sort else self.sort_by(column.key)
                return
            x -= width + 1

    # ---- drawing

    def on_resize(self) -> None:
        self._settle()

    def _room(self) -> list[tuple[Column, int]]:
        tokens = (one["token"] for lock in self.rows for one in lock["holders"])
        return columns(self.size.width, self._several, len(str(max(tokens, default=0))))

    def render_line(self, y: int) -> Strip:
        width, room = self.size.width, self._room()
        if y == 0:
            text = " ".join(heads(room, self.sort, self.falls))
            return Strip([Segment(text, Style(bold=True, reverse=True))]).adjust_cell_length(width, Style(reverse=True))
        if self._top + y - 1 >= len(self.rows):
            return Strip.blank(width)
        lock = self.rows[self._top + y - 1]
        now, chosen = time.time(), self._top + y - 1 == self._at
        ground = Style(bgcolor="grey30") if chosen else Style()
        urgent = _URGENT[lock["attention"][0]] if lock["attention"] else None
        parts = []
        for (column, _), cell in zip(room, cells(lock, now, room), strict=True):
            text, style = cell, ground
            if column.key == "left" and lock["store"] in self.behind:
                text, style = "?".ljust(len(text)), style + Style(dim=True)  # it may have been renewed since
            elif column.key == "left" and lock["holders"]:
                part = least(lock, now)
                style += Style(color="green" if part > 1 / 3 else "red", bgcolor="grey23" if not chosen else None)
            elif column.key in ("name", "wait", "line", "age") and urgent:
                style += Style(color=urgent, bold=column.key == "name")
            elif column.key == "name":
                style += Style(bold=True)
            parts += [Segment(text, style), Segment(" ", ground)]
        return Strip(parts[:-1]).adjust_cell_length(width, ground)


def _key(lock: Lock) -> Key:
    return lock["store"], lock["name"]
