"""What must not be seen: passwords, and URLs that have one.

Error trackers record the local variables of every frame, by their repr; a careless f-string writes what it is given. Both
get `***`. What is derived from a secret (`partition`, `encode`, `+`) is plain again: keep it out of variables that live on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Self

from .errors import Misuse

HIDDEN = "***"
_WITHOUT_HOSTS = ("memory", "sqlite", "unix")
_MARKS = re.compile("([=&#])")
_SOUNDS_SECRET = re.compile("pass|pwd|token|secret|key", re.IGNORECASE)
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:\s]*)(:[0-9]*)?")


class Secret(str):
    """Text that is compared, cut and encoded like any other, and shown as `***`.

    >>> password = Secret("hunter2")
    >>> print(password, repr(password), f"{password}", password == "hunter2", password.plain)
    *** *** *** True hunter2
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        return super().__new__(cls, text[:])  # plain: else that of a secret would be what it is shown as

    def __repr__(self) -> str:
        return HIDDEN

    def __str__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return HIDDEN

    @property
    def plain(self) -> str:
        return self[:]  # slices of a subclass are plain


class SecretBytes(bytes):
    """The same of bytes: a request that logs in."""

    __slots__ = ()

    def __repr__(self) -> str:
        return HIDDEN

    def __str__(self) -> str:
        return HIDDEN


def redacted(url: str) -> str:
    """The URL without its password, and without values of its query that sound like one: fit to be shown."""
    # The slashes may be mistyped: whoever forgot one shall not find the password in the log of the error.
    shown = re.sub(r"^([^:/]*(?::/{0,2}|//)(?!/)[^/?#@:]*:).*@", rf"\1{HIDDEN}@", url[:], flags=re.DOTALL)
    return "".join(_without_secrets(shown))


def _without_secrets(text: str) -> Iterator[str]:
    """Each letter is looked at once: what is shown may be an error's text, and that a server's."""
    name, hiding = "", False
    for piece in _MARKS.split(text):
        if piece in ("&", "#"):
            hiding = False
        if hiding:
            continue
        yield piece
        if piece == "=":
            said = name if name[:1] == "&" else name.partition("?")[2]
            name, hiding = "", bool(_SOUNDS_SECRET.search(said))
            if hiding:
                yield HIDDEN
        else:
            name = piece if piece == "&" else name + piece


def has_password(url: str) -> bool:
    return redacted(url) != url


def plausible(url: str) -> None:
    """Refuse a URL whose password would be taken for something that is shown: a host, a port, an option.

    Every built-in store asks this before it looks closer. Nothing of the URL is cited: it may be a piece of the password.
    """
    scheme, _, rest = url.partition("://")
    if scheme in _WITHOUT_HOSTS:
        return
    rest, _, query = rest.partition("?")
    if "@" in query:
        raise Misuse(
            f"{scheme}://…: there is an @ after the first ?. In a user or a password write ? as %3F, in an option @ as %40"
        )
    place = rest.rpartition("@")[2]
    if not all(_HOST.fullmatch(host) for host in place.partition("/")[0].split(",")):
        raise Misuse(
            f"{scheme}://…: what stands where a host belongs is no host or host:port (it is not shown, as it may be "
            f"part of a password). Write {scheme}://user:password@host:port, and / ? # @ : % in a password as %XX"
        )
