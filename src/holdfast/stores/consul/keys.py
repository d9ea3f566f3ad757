"""What is kept where, and the operations of a transaction.

    PREFIX/locks/<name>:              the book of one name, while it is in use
    PREFIX/sessions/<id>/alive        held by that session while it lives: Consul deletes it with the session
    PREFIX/sessions/<id>/bell-<who>   "look again", put there, in the session's own name, by whoever made room
    PREFIX/sessions/<id>/out-<who>    "you were put out", put there by an eviction
    PREFIX/evictions/<name>:          the last forced release of a name, kept for an hour

Names are quoted byte by byte, so two names are two keys, and quoted prefixes are prefixes. The colon, which quoting never
writes, ends a name: so one name's key is no prefix of another's.

A book whose entries all belong to one session is held by that session, so that Consul deletes it with the session: a
name whose only holder was killed leaves nothing behind, and Consul's own lock-delay holds for it. As soon as a second
session writes itself into the book, the key is let go, and entries of the dead are struck out by whoever comes next.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Container
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from .book import Book

Operation = dict[str, Any]
MOST_OPERATIONS = 64  # in one transaction: Consul's limit
MOST_LOOKED_AFTER = 60  # sessions or books in one transaction


class Step(NamedTuple):
    """An operation, and what it means if it fails."""

    operation: Operation
    about: str  # "book": somebody else was quicker; "alive": our session is over; "theirs": that session is; "prune"
    session: str = ""


class Keys:
    def __init__(self, prefix: str) -> None:
        self._locks = f"{prefix}/locks/"
        self._sessions = f"{prefix}/sessions/"
        self.evictions = f"{prefix}/evictions/"

    def book(self, name: str) -> str:
        return f"{self._locks}{quote(name, safe='')}:"

    def books(self, prefix: str) -> str:
        return self._locks + quote(prefix, safe="")

    def name_of(self, key: str) -> str | None:
        """None: it is no book of ours, but of somebody whose prefix begins with ours."""
        quoted = key[len(self._locks) :]
        return unquote(quoted[:-1]) if quoted.endswith(":") and "/" not in quoted else None

    def eviction(self, name: str) -> str:
        return f"{self.evictions}{quote(name, safe='')}:"

    def session(self, session: str) -> str:
        return f"{self._sessions}{session}/"

    def alive(self, session: str) -> str:
        return f"{self._sessions}{session}/alive"

    def bell(self, session: str, who: str) -> str:
        return f"{self._sessions}{session}/bell-{who}"

    def out(self, session: str, who: str) -> str:
        return f"{self._sessions}{session}/out-{who}"

    def write(self, name: str, book: Book, dead: Container[str] = ()) -> list[Step]:
        """Keep the book as it is now, if nobody has changed it since it was read; and ring for whoever may enter."""
        key = self.book(name)
        if not book.inside and not book.line:
            return [Step(unchanged(key, book.index), "book"), Step(delete(key), "book")] if book.index else []
        value, keeper, heir = book.packed(), book.only_session(), book.heir()
        if keeper in dead:  # it waits for its lock-delay to end
            keeper = ""
        book.next_keeper = keeper
        steps = [Step(unchanged(key, book.index), "book")]
        if book.keeper and book.keeper != keeper:
            steps.append(Step(let_go(key, book.keeper, value), "book"))
        elif not keeper:
            steps.append(Step(put(key, value), "book"))
        if keeper:
            steps.append(Step(hold(key, keeper, value), "theirs", keeper))
        if heir is not None:
            steps.append(Step(hold(self.bell(heir.session, heir.who), heir.session), "theirs", heir.session))
        return steps


def url_of(key: str) -> str:
    """The key as part of an address: its percent signs are data."""
    return "/v1/kv/" + quote(key, safe="/")


def tree(key: str) -> Operation:
    """All keys that begin so; that there are none is no error, as it would be to `get`."""
    return {"KV": {"Verb": "get-tree", "Key": key}}


def unchanged(key: str, index: int) -> Operation:
    if not index:
        return {"KV": {"Verb": "check-not-exists", "Key": key}}
    return {"KV": {"Verb": "check-index", "Key": key, "Index": index}}


def hold(key: str, session: str, value: bytes = b"") -> Operation:
    """Put it there in the name of a session, with which it goes. Refused if the session is dead."""
    value = value or os.urandom(6)  # something new: a write that changes nothing need not count as one
    return {"KV": {"Verb": "lock", "Key": key, "Session": session, "Value": _value(value)}}


def let_go(key: str, session: str, value: bytes) -> Operation:
    return {"KV": {"Verb": "unlock", "Key": key, "Session": session, "Value": _value(value)}}


def put(key: str, value: bytes) -> Operation:
    return {"KV": {"Verb": "set", "Key": key, "Value": _value(value)}}


def delete(key: str) -> Operation:
    return {"KV": {"Verb": "delete", "Key": key}}


def _value(value: bytes) -> str:
    return base64.b64encode(value).decode()
