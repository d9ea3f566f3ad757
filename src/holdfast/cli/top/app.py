"""The screen of `holdfast top`. It asks no store anything: threads look (dashboard/looking.py), and it shows what they found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from rich.style import Style
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer, Input, Static

from ...dashboard.board import Board
from ...dashboard.history import History
from ...dashboard.looking import Looking
from ..text import line
from .listing import Key, Listing
from .one import One
from .rows import Lock, matching

TICK = 0.25  # seconds between two drawings; what is drawn is in memory


class Top(App[None]):
    TITLE = "holdfast top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { overflow: hidden; }
    #told { height: auto; max-height: 40%; }
    #listing { height: 1fr; }
    #one { width: 100%; }
    #filter { dock: bottom; display: none; margin-bottom: 1; }
    #filter.open { display: block; }
    #evict { width: 72; max-width: 96%; height: auto; max-height: 90%; padding: 1 2; border: thick $error; background: $surface; }
    Evict { align: center middle; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c", "quit", show=False, priority=True)]

    def __init__(self, board: Board, history: History, looking: Mapping[str, Looking], *, prefix: str = "") -> None:
        super().__init__()
        self._board = board
        self._history = history
        self._looking = looking
        self._version = 0
        self._locks: dict[Key, Lock] = {}
        self._stores: dict[str, dict[str, Any]] = {}
        self._filter = prefix
        self._told = Static(id="told")
        self._listing = Listing(several=len(looking) > 1)
        self._end: Callable[[], None] = lambda: None

    def compose(self) -> ComposeResult:
        yield self._told
        yield self._listing
        yield Input(placeholder="name, owner, store, or what is wrong", id="filter", value=self._filter)
        yield Footer()

    def on_mount(self) -> None:
        self._end = self._board.watch(lambda: None)  # while somebody looks, the threads look oftener
        for one in self._looking.values():
            one.wake()
        self._listing.focus()
        self.set_interval(TICK, self._tick)
        self._tick()

    def on_unmount(self) -> None:
        self._end()

    def _tick(self) -> None:
        told = self._board.since(self._version)
        self._version = told["version"]
        if told["whole"]:
            self._locks.clear()
        for store in told["stores"]:
            self._stores[store["id"]] = store
        for lock in told["locks"]:
            self._locks[lock["store"], lock["name"]] = lock
        for store, name in told["gone"]:
            self._locks.pop((store, name), None)
        self._draw()

    def _draw(self) -> None:
        found = matching(self._locks.values(), self._filter)
        if self._listing.is_attached:  # a last tick may come when all is taken down
            self._listing.behind = frozenset(store for store, one in self._looking.items() if one.is_behind)
            self._listing.put(found)
            self._told.update(self._head(found))

    def _head(self, found: list[Lock]) -> Text:
        text = Text()
        waiting = sum(len(lock["waiters"]) for lock in found)
        trouble = sum(1 for lock in found if lock["attention"])
        count = len(self._locks)
        some = f"{len(found)} of " if len(found) != count else ""
        text.append(f"{some}{count} lock{'s' * (count != 1)} in use, {waiting} waiting")
        if trouble:
            text.append(f", {trouble} need{'s' * (trouble == 1)} attention", Style(color="red", bold=True))
        if self._filter:
            text.append(f"  filter: {line(self._filter)}", Style(color="cyan"))
        for store in self._stores.values():
            text.append(f"\n{store['id']}  {line(store['url'])}", Style(dim=True))
            if store["error"]:
                text.append(f"\n  does not answer, asked again and again: {line(store['error'])}", Style(color="red"))
            elif self._looking[store["id"]].is_behind:
                text.append("\n  takes long to answer: what is shown of it may be old", Style(color="red"))
            if store["partly"]:
                text.append(f"  {store['partly']}", Style(color="yellow"))
        return text

    # ---- keys

    def action_filter(self) -> None:
        box = self.query_one("#filter", Input)
        box.add_class("open")
        box.focus()

    def key_escape(self) -> None:
        if len(self.screen_stack) == 1:
            self.action_clear()

    def action_clear(self) -> None:
        self.query_one("#filter", Input).value = ""
        self._filtered()

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.id == "filter":
            self._filter = event.value
            self._draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input.id == "filter":
            self._filtered()

    def _filtered(self) -> None:
        self.query_one("#filter", Input).remove_class("open")
        self._listing.focus()

    def on_listing_opened(self, message: Listing.Opened) -> None:
        store, name = message.key
        self.push_screen(One(self._looking[store], self._history, name, lambda: self._locks.get((store, name))))
