"""What may be said of a lock, for type checkers: the overloads of both surfaces differ in `otherwise` only."""

from __future__ import annotations

from typing import TypedDict

from .decorating import Key


class Options(TypedDict, total=False):
    ttl: float
    timeout: float | None
    fair: bool
    renew: bool


class RWOptions(Options, total=False):
    keep: float


class LockOptions(Options, total=False):
    key: Key | None
    reentrant: bool
    keep: float
    confirm: bool


class OnceOptions(TypedDict, total=False):
    key: Key | None
    at_least: float
    at_most: float
