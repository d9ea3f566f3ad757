"""One lock: who is inside, the line, who waits for whom, what happened; and putting a holder out, for whoever types its name."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from textwrap import fill
from typing import TYPE_CHECKING, ClassVar

from rich.style import Style
from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import Footer, Input, Static

from ...claim import Holding, Snapshot
from ...errors import HoldfastError
from .. import story
from ..table import share
from ..text import ago, line
from .rows import Lock, bar

if TYPE_CHECKING:
    from ...dashboard.history import History
    from ...dashboard.looking import Looking

_EVENTS = 200
_WAITING = 50
_EDGES = 50
_DIM = Style(dim=True)
_PLAIN = Style()


class One(Screen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "app.pop_screen", "Back"),
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("e", "evict", "Put out"),
    ]

    def __init__(self, looking: Looking, history: History, name: str, lock: Callable[[], Lock | None]) -> None:
        super().__init__()
        self._looking = looking
        self._history = history
        self._called = name
        self._lock = lock
        self._at = 0
        self._drawn = ""
        self._place = Static(id="one")

    def compose(self) -> ComposeResult:
        yield VerticalScroll(self._place)
        yield Footer()

    def on_mount(self) -> None:
        self.set_interval(0.25, self.draw)
        self.draw()

    def action_move(self, by: int) -> None:
        """From holder to holder; where there is one at most, up and down."""
        holders = self._holders()
        if len(holders) > 1:
            self._at = (self._at + by) % len(holders)
            self.draw()
        else:
            self.query_one(VerticalScroll).scroll_relative(y=by * 3, animate=False)

    def action_evict(self) -> None:
        snapshot, holders = self._snapshot(), self._holders()
        if snapshot is None or not holders:
            self.notify("Nobody is inside.")
            return
        one = holders[min(self._at, len(holders) - 1)]
        self.app.push_screen(Evict(snapshot, one), lambda agreed: self._answered(agreed, one.token))

    def _answered(self, agreed: bool | None, token: int) -> None:
        if agreed:
            self._put_out(token)

    @work(thread=True)
    def _put_out(self, token: int) -> None:
        try:
            past = self._looking.locks().force_release(self._called, token=token)
        except HoldfastError as error:
            told, well = line(str(error)), False
        else:
            well = past is not None
            told = f"Put out. Token {past} outranks it." if well else f"Nobody holds token {token} any more."
        self._looking.wake()
        severity = "information" if well else "warning"
        self.app.call_from_thread(self.app.notify, told, markup=False, severity=severity, timeout=10)

    def _snapshot(self) -> Snapshot | None:
        return self._looking.seen(self._called)

    def _holders(self) -> list[Holding]:
        snapshot = self._snapshot()
        return list(snapshot.holders) if snapshot else []

    # ---- drawing

    def draw(self) -> None:
        text = self._told()
        if (
            self._place.is_attached and text.markup != self._drawn
        ):  # what is drawn anew loses what was selected with the mouse
            self._drawn = text.markup
            self._place.update(text)

    def _told(self) -> Text:
        text = Text()
        lock, snapshot = self._lock(), self._snapshot()
        text.append(f"{line(self._called)}", Style(bold=True))
        behind = self._looking.is_behind
        kind = f"{lock['kind']}" if lock else "not known" if behind else "free,"
        kind += f" in {self._looking.store}"
        text.append(f"  {kind}\n", _DIM)
        for why in lock["attention"] if lock else ():
            text.append(f"{why}\n", Style(color="red", bold=True))
        if self._looking.error:
            text.append(f"What follows may be old: {line(self._looking.error)}\n", Style(color="red"))
        elif behind:
            text.append("What follows may be old: the store takes long to answer\n", Style(color="red"))
        _part(text, "Inside")
        if lock is None or not lock["holders"]:
            text.append("  not known\n" if behind and lock is None else "  nobody\n", _DIM)
        else:
            self._inside(text, lock)
        self._line(text, lock)
        self._graph(text, snapshot)
        self._past(text)
        return text

    def _inside(self, text: Text, lock: Lock) -> None:
        now = time.time()
        for number, one in enumerate(lock["holders"]):
            chosen = len(lock["holders"]) > 1 and number == min(self._at, len(lock["holders"]) - 1)
            left = max(0.0, one["ends"] - now)
            part = left / one["ttl"] if one["ttl"] else 0.0
            text.append("> " if chosen else "  ", Style(bold=True))
            text.append(line(one["owner"]), Style(bold=chosen))
            text.append(f"  {line(one['note'])}" if one["note"] else "", _DIM)
            text.append(f"  {one['share']}" if one["share"] else "")
            text.append(f"\n    token {one['token']}  held {ago(now - one['since'])}  ")
            if self._looking.is_behind:  # it may have been renewed since
                text.append(f"a ttl of {ago(one['ttl'])}, not looked at since\n")
                continue
            text.append(bar(part, 12), Style(color="green" if part > 1 / 3 else "red", bgcolor="grey23"))
            text.append(f" {ago(left)} of {ago(one['ttl'])} left\n")

    def _line(self, text: Text, lock: Lock | None) -> None:
        waiters = lock["waiters"] if lock else []
        if not waiters:
            return
        _part(text, f"In line ({len(waiters)})")
        for place, one in enumerate(waiters[:_WAITING], 1):
            self._add(text, f"{place}. {line(one['owner'])}  {ago(time.time() - one['since'])}  {one['share']}")
        if len(waiters) > _WAITING:
            text.append(f"  … and {len(waiters) - _WAITING} more\n", _DIM)

    def _graph(self, text: Text, snapshot: Snapshot | None) -> None:
        if snapshot is None or not snapshot.waiters:
            return
        graph = self._looking.graph()
        _part(text, "Who waits for whom")
        about = {one.owner for one in snapshot.holders} | {one.owner for one in snapshot.waiters}
        edges = (edge for edge in graph.each_edge() if edge.name == self._called or {edge.waiter, edge.holder} & about)
        for edge in islice(edges, _EDGES):
            self._add(text, f"{line(edge.waiter)} waits for {line(edge.name)}, which {line(edge.holder)} holds")
        if next(edges, None) is not None:
            text.append("  … and more\n", _DIM)
        for cycle in graph.deadlocks():
            if any(edge.name == self._called for edge in cycle):
                self._add(text, story.cycle(cycle), Style(color="red", bold=True))

    def _past(self, text: Text) -> None:
        _part(text, "What happened")
        for one in self._history.find(store=self._looking.store, name=self._called, most=_EVENTS):
            at = time.strftime("%H:%M:%S", time.localtime(one["at"]))
            token = f"  token {one['token']}" if one["token"] else ""
            detail = f"  {line(one['detail'])}" if one["detail"] else ""
            self._add(text, f"{at}  {one['event']:<13}  {line(one['owner'])}{token}  {ago(one['seconds'])}{detail}")

    def _add(self, text: Text, told: str, style: Style = _PLAIN) -> None:
        """On a line of its own, or several: those that follow are indented."""
        width = max(self.size.width - 4, 20)
        text.append(f"{fill(told, width, initial_indent='  ', subsequent_indent='      ')}\n", style)


def _part(text: Text, title: str) -> None:
    text.append(f"\n{title}\n", Style(bold=True, underline=True))


class Evict(ModalScreen[bool]):
    """Shows what will happen. Only the name, typed, goes on; what cannot be typed, as it is shown."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(False)", "Leave it")]

    def __init__(self, snapshot: Snapshot, one: Holding) -> None:
        super().__init__()
        self._called = snapshot.name
        told = [*story.forewarn(snapshot, one), *([f"It is there {what}."] if (what := share(snapshot, one)) else [])]
        self._told = "\n".join([*told, "", f"To go on, type its name: {line(snapshot.name)}", "Esc leaves it alone."])

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="evict"):  # however long the name: what has the focus is scrolled into sight
            yield Static(Text(self._told))
            yield Input(placeholder="the name of the lock", id="typed")

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.value in (self._called, line(self._called)):
            self.dismiss(True)
        else:
            self.notify("That is not its name: nothing was done.", severity="warning")
