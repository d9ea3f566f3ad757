"""Words for people: nothing that could play tricks with a terminal, and times as one would say them."""

from __future__ import annotations


def shown(text: str) -> str:
    """`text`, with everything escaped that a terminal would act upon: control characters, bidi marks, lone surrogates.

    Owners and names come from other machines; an escape sequence in one must not reach the screen of whoever looks.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one == "\n" else one.encode("unicode_escape").decode() for one in text)


def line(text: str) -> str:
    """As `shown`, and on one line."""
    return shown(text).replace("\n", "\\n")


def ago(seconds: float) -> str:
    """A length of time, in two units at most: 0.4 s, 12 s, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, unit, smaller, name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit} {rest} {name}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"
