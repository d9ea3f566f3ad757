"""What every store on a network is asked: who can listen, who gets in, and what time it is there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, NamedTuple

from ..drivers.base import finish
from ..drivers.dialing import is_local
from ..drivers.threads import Threads
from ..stores.kit.url import show
from .findings import Finding, ok, problem, warning

if TYPE_CHECKING:
    from ssl import SSLContext

SKEW = 1.0  # seconds: more is worth a word
_ASKED = 3
_MOST = 1 << 16  # bytes of an answer


def almighty(user: str) -> Finding:
    return warning(
        f"{user} may do everything, also what is no business of locks",
        "use a user with the rights that `holdfast migrate --acl` prints",
    )


def secrecy(hosts: Iterable[str], *, tls: bool, login: bool, scheme: str) -> Iterator[Finding]:
    """Clear text, and doors without a lock, on addresses that others can reach."""
    far = [host for host in hosts if not is_local(host)]
    if not far:
        yield ok("encrypted" if tls else "clear text, which does not leave this machine")
        return
    where = ", ".join(far)
    if not tls:
        what = "the password and every name" if login else "every name and every holder's secret"
        yield problem(
            f"clear text to {where}: whoever is on the way reads {what}, and can release locks", f"use {scheme}"
        )
    else:
        yield ok(f"encrypted, and the certificate of {where} is checked")
    if not login:
        yield problem(
            f"no login at {where}: whoever reaches that address can take and release every lock",
            "have the server ask for a user and a password or a certificate, and put them into the URL",
        )


class Clock(NamedTuple):
    """How far another clock is ahead of ours, give or take."""

    ahead: float
    doubt: float

    @property
    def off(self) -> bool:
        return abs(self.ahead) - self.doubt > SKEW


def compare(ask: Callable[[], float], grain: float = 0.0) -> Clock:
    """`ask` gives Unix seconds; asked a few times, and the quickest answer counts. `grain`: it tells no finer than that."""
    best = Clock(0.0, float("inf"))
    for _ in range(_ASKED):
        before = time.time()
        told = ask()
        after = time.time()
        doubt = (after - before + grain) / 2
        if doubt < best.doubt:
            best = Clock(told + grain / 2 - (before + after) / 2, doubt)
    return best


def clocks(found: Sequence[tuple[str, Clock]], matters: str) -> Iterator[Finding]:
    """Against ours and, of several, against each other. `matters`: what a wrong clock does to locks in this store."""
    advice = f"keep the clocks together (chrony, NTP): {matters}"
    for where, clock in found:
        if clock.off:
            way = "ahead of" if clock.ahead > 0 else "behind"
            yield warning(f"the clock of {where} is {abs(clock.ahead):.1f} s {way} ours", advice)
        else:
            about = max(clock.doubt, abs(clock.ahead), 0.001)
            yield ok(f"the clock of {where} agrees with ours, give or take {about:.3g} s")
    if len(found) > 1:
        first = min(found, key=lambda one: one[1].ahead)
        last = max(found, key=lambda one: one[1].ahead)
        apart = Clock(last[1].ahead - first[1].ahead, first[1].doubt + last[1].doubt)
        if apart.off:
            yield warning(f"the clocks of {first[0]} and {last[0]} are {apart.ahead:.1f} s apart", advice)


def heard(address: tuple[str, int], tls: SSLContext | None, question: bytes, end: bytes, within: float) -> bytes:
    """What is said to that, until `end` or until they hang up. In that time in all: a socket's own is for each piece, and
    whoever sends a letter now and then comes to no end."""
    driver = Threads()
    deadline = driver.now() + within
    stream = finish(driver.connect(address, tls, deadline))
    try:
        finish(stream.send(question, deadline))
        said = b""
        while (more := finish(stream.receive(deadline))) and end not in said + more:
            said += more
            if len(said) > _MOST or driver.now() >= deadline:
                raise TimeoutError("its answer comes to no end")
        return said + more
    finally:
        stream.close()


def http_time(address: tuple[str, int], tls: SSLContext | None, path: str, within: float) -> float:
    """By the Date of an HTTP answer, whatever the answer is; in whole seconds, cut off."""
    question = f"GET {path} HTTP/1.1\r\nHost: {show(address)}\r\nConnection: close\r\n\r\n"
    said = heard(address, tls, question.encode(), b"\r\n\r\n", within).decode("latin-1")
    for line in said.partition("\r\n\r\n")[0].split("\r\n"):
        name, _, value = line.partition(":")
        if name.lower() == "date":
            return parsedate_to_datetime(value.strip()).timestamp()
    raise ValueError("its answers have no date")


def members(there: Sequence[str], silent: Sequence[tuple[str, object]], what: str) -> Iterator[Finding]:
    """Of a quorum: who answers, and how much worse it may get."""
    size = len(there) + len(silent)
    needed = size // 2 + 1
    for where, why in silent:
        yield warning(
            f"{what} {where} does not answer: {why}", "bring it back; until then one failure less is survived"
        )
    if len(there) < needed:
        yield problem(
            f"{len(there)} of {size} answer, and {needed} are needed: no lock can be had", "bring the others back"
        )
    elif size == 1:
        yield warning(f"one {what} only: when it is down, no lock can be had", "run three")
    elif size % 2 == 0:
        yield warning(
            f"{size} {what}s survive the loss of {(size - 1) // 2}, as {size - 1} would",
            f"run {size - 1} or {size + 1}",
        )
    else:
        yield ok(f"{len(there)} of {size} answer; {len(there) - needed} more may fail")
