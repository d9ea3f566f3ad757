"""What a check says: how good it is, what was seen, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from ..errors import HoldfastError

OK, WARNING, PROBLEM = LEVELS = ("ok", "warning", "problem")


class Finding(NamedTuple):
    level: str  # one of LEVELS
    text: str
    advice: str = ""
    check: str = ""


def ok(text: str) -> Finding:
    return Finding(OK, text)


def warning(text: str, advice: str) -> Finding:
    return Finding(WARNING, text, advice)


def problem(text: str, advice: str) -> Finding:
    return Finding(PROBLEM, text, advice)


def unseen(why: object, advice: str = "ask as somebody who may look, or look there yourself") -> Finding:
    """Not known to be well is no good news: a warning."""
    return Finding(WARNING, f"could not look: {why}", advice)


def worst(findings: Iterable[Finding]) -> str:
    return max((one.level for one in findings), key=LEVELS.index, default=OK)


Check = Callable[[], Iterable[Finding]]


class Ward:
    """A store under examination: connections of the doctor's own, on the wire that the store has.

    `order` names its checks in the order in which they are told. Each is the method of that name, with _ for a blank.
    """

    order: tuple[str, ...]

    def checks(self) -> Iterable[tuple[str, Check]]:
        return [(name, getattr(self, name.replace(" ", "_"))) for name in self.order]

    def close(self) -> None:
        return


def findings(name: str, check: Check) -> Iterator[Finding]:
    """What one check finds. That it cannot look is a finding too, and never the end of the others."""
    found = 0
    try:
        for one in check():
            found += 1
            yield one._replace(check=name)
    except (HoldfastError, OSError, EOFError, ValueError, LookupError, TypeError, AttributeError) as error:
        # The last four: an answer of another form than any server that is known gives.
        yield unseen(_in_a_line(error))._replace(check=name)
        return
    if not found:
        yield ok("nothing to say")._replace(check=name)


def _in_a_line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if isinstance(error, (HoldfastError, OSError)) else f"{type(error).__name__}: {text}"
