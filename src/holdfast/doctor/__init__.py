"""Is this store fit to keep locks? Looked at from outside, and told with what to do about it.

    for finding in holdfast.doctor.examine("redis://localhost"):
        print(finding.level, finding.check, finding.text, finding.advice)

Nothing is changed but one lock of the doctor's own, which is taken and given back ten times. Every store has a module here with
its checks; what cannot be looked at says so, and does not keep the others from being looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib import import_module

from .. import sync
from ..claim import Traits
from ..connecting import BUILT_IN, resolve
from ..errors import HoldfastError
from ..secret import Secret
from . import everywhere
from .findings import LEVELS, OK, PROBLEM, WARNING, Finding, Ward, findings, unseen, worst

__all__ = ["examine", "traits_of", "worst", "Finding", "OK", "WARNING", "PROBLEM", "LEVELS"]


def examine(url: str | None = None) -> Iterator[Finding]:
    """One finding after the other, as they are made. Misuse: the URL itself is wrong."""
    target = resolve(url)
    with sync.connect(target, label="doctor", observe=[]) as locks:
        reached = True
        for finding in findings("connection", partial(everywhere.connection, locks)):
            reached = reached and finding.level == OK
            yield finding
        if not reached:
            return
        for name, check in (("claims", everywhere.claims), ("ttl", everywhere.ttl)):
            yield from findings(name, partial(check, locks))
        yield from _of_its_kind(target)
        yield from findings("leftovers", partial(everywhere.leftovers, locks))


def _of_its_kind(url: Secret) -> Iterator[Finding]:
    """By the module that is called as the store's is: redis for holdfast.stores.redis."""
    store = BUILT_IN.get(url.partition("://")[0], "").rpartition(".")[2]
    if not store:
        yield unseen("no checks are known for this kind of store", "ask its authors")._replace(check="store")
        return
    try:
        ward: Ward = import_module(f"{__name__}.{store}").admit(url.plain)
    except (HoldfastError, OSError) as error:
        yield unseen(error)._replace(check="store")
        return
    try:
        for name, check in ward.checks():
            yield from findings(name, check)
    finally:
        ward.close()


def traits_of(url: str | None = None) -> Traits:
    """What the store promises, and what not, whatever its settings."""
    with sync.connect(resolve(url), observe=[]) as locks:
        return locks.traits
