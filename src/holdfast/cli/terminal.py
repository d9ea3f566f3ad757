"""What a terminal can do that a pipe cannot: colours, bars. Anywhere else all of these give plain text."""

from __future__ import annotations

import os
from typing import TextIO

STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def is_rich(stream: TextIO) -> bool:
    """Colours are welcome: a terminal, which is not a dumb one, and nobody has said NO_COLOR (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


class Paint:
    """Colours text, or does not."""

    def __init__(self, stream: TextIO) -> None:
        self.rich = is_rich(stream)
        self._blocks = "utf" in (stream.encoding or "").lower()

    def __call__(self, style: str, text: str) -> str:
        return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if self.rich and text else text

    def bar(self, part: float, width: int = 12) -> str:
        """How much of something is left; nothing where there is no terminal to draw on."""
        if not self.rich:
            return ""
        part = min(max(part, 0.0), 1.0)
        style = "green" if part > 0.5 else "yellow" if part > 0.25 else "red"
        if not self._blocks:
            count = round(part * width)
            return f"[{self(style, '#' * count)}{'.' * (width - count)}]"
        eighths = round(part * width * 8)
        full = "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
        return f"▕{self(style, full)}{' ' * (width - len(full))}▏"


def wrapped(sentences: list[str], stream: TextIO) -> list[str]:
    """At words, to the width of the terminal. What is indented is to be copied, and stays whole."""
    if not stream.isatty():
        return sentences
    from textwrap import fill

    width = max(room(stream) or 0, 40)
    return [
        one if one.startswith(" ") else fill(one, width, break_long_words=False, break_on_hyphens=False)
        for one in sentences
    ]


def width_of(text: str) -> int:
    """Columns on the screen, which are not letters: 日 takes two, an accent none."""
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text
    )


def room(stream: TextIO) -> int | None:
    """Columns of the terminal; None where nothing has to fit."""
    return os.get_terminal_size(stream.fileno()).columns if stream.isatty() else None


def cut(text: str, width: int) -> str:
    """No wider than that; what was cut off is told by an ellipsis."""
    if width_of(text) <= width:
        return text
    while text and width_of(text) > width - 1:
        text = text[:-1]
    return f"{text}…" if width > 0 else ""


def padded(text: str, width: int, *, right: bool = False) -> str:
    gap = " " * max(0, width - width_of(text))
    return gap + text if right else text + gap
