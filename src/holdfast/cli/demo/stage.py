"""What the audience sees: one picture that is drawn again in place, or plain lines where there is no terminal."""

from __future__ import annotations

import os
import re
import sys
import time

from ..terminal import Paint, padded

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"
_LINES = 5  # of narration stay in the picture


class Stage:
    def __init__(self, *, silent: bool = False) -> None:
        self.paint = Paint(sys.stdout)
        self.live = self.paint.rich and not silent
        self._silent = silent
        self._drawn = 0
        self._told: list[str] = []
        self._picture: list[str] = []

    def open(self) -> None:
        if self.live:
            self._write(_HIDE)

    def close(self) -> None:
        if self.live:
            self._write(_SHOW)

    def keep(self, *lines: str) -> None:
        """Print for good, above the picture."""
        if self._silent:
            return
        self._erase()
        for line in lines:
            print(line)
        sys.stdout.flush()

    def act(self, title: str) -> None:
        self._told = []
        self._picture = []
        self.keep(self.paint("bold", title))

    def tell(self, text: str, style: str = "") -> None:
        """One more line of the story."""
        if self.live:
            self._told = [*self._told, self.paint(style, text) if style else text][-_LINES:]
            self.draw(self._picture)
        else:
            self.keep(f"  {text}")

    def draw(self, picture: list[str]) -> None:
        if not self.live:
            return
        self._picture = picture
        told = [f"  {one}" for one in self._told]
        columns = os.get_terminal_size().columns if sys.stdout.isatty() else 80
        lines = ["", *picture, "", *told, *[""] * (_LINES - len(told))]
        text = "\n".join(clip(line, columns - 1) for line in lines)
        self._write(f"{self._back()}{text}\n")
        self._drawn = len(lines)

    def beat(self, seconds: float) -> None:
        """Time to read. A log file needs none."""
        if self.live:
            time.sleep(seconds)

    def end_act(self, *lines: str) -> None:
        self.keep(*lines, "")

    def _back(self) -> str:
        """Up to where the picture began, and clear from there. One write with the new picture, so that nothing flickers."""
        return f"\x1b[{self._drawn}A\r\x1b[J" if self._drawn else ""

    def _erase(self) -> None:
        if self.live and self._drawn:
            self._write(self._back())
            self._drawn = 0

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def clip(line: str, width: int) -> str:
    """Cut to the screen: a line that wraps would throw the counting of lines off. Colours take no room."""
    if len(_ESCAPE.sub("", line)) <= width:
        return line
    kept, room = [], width - 1
    for piece in re.split(f"({_ESCAPE.pattern})", line):
        if _ESCAPE.fullmatch(piece):
            kept.append(piece)
        else:
            kept.append(piece[:room])
            room -= len(kept[-1])
    return "".join(kept) + "…"


def columns(*cells: tuple[str, int]) -> str:
    return "".join(padded(text, width) for text, width in cells)
