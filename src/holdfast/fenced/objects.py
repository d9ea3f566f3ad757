"""Objects in S3 and whatever speaks its API: compare-and-swap (If-Match, If-None-Match) with a token. With boto3.

The first line of a guarded object is its mark, and the content follows. It has to be there: an ETag is a hash of the
content, so a mark in the metadata alone could move without changing the ETag, and a write of an older holder, conditional
on that ETag, would land after its successor has read. (The token is in the metadata as well, for whoever looks.)
"""

from __future__ import annotations

import json
import os
import time
from typing import Any, NamedTuple

from ..errors import Misuse, Unavailable
from .in_a_thread import InAThread
from .mark import Ticket, mark_of, refusal, shown, valid_token

_ATTEMPTS = 200
_RETRY = (404, 409, 412)  # gone, just being written, changed: by somebody else, since we looked


class _State(NamedTuple):
    etag: str | None  # None: there is no object
    seen: int = 0
    since: float | None = None
    content: bytes | None = None


class Object:
    """One object and one lease, through a client of boto3."""

    def __init__(self, client: Any, bucket: str, key: str, ticket: Ticket) -> None:
        if not hasattr(client, "put_object"):
            raise Misuse(f"an S3 client of boto3 is wanted, not {type(client).__name__}")
        self._client = client
        self._where = {"Bucket": bucket, "Key": key}
        self._mark = mark_of(ticket)

    def __repr__(self) -> str:
        return shown(self, self._mark, "/".join(self._where.values()))

    def read(self) -> bytes | None:
        """The content, or None; from now on, older tokens are refused. Rewrites the object if this token is new to it."""
        for _ in range(_ATTEMPTS):
            state = self._look()
            if state.seen == self._mark.token or self._swap(state, state.content):
                return state.content
        raise self._too_fast()

    def write(self, content: bytes) -> None:
        if not isinstance(content, (bytes, bytearray)):
            raise Misuse(f"the content of an object must be bytes, not {type(content).__name__}: encode it")
        for _ in range(_ATTEMPTS):
            if self._swap(self._look(), bytes(content)):
                return
        raise self._too_fast()

    def delete(self) -> bool:
        """Forget the content, never the mark: a small object stays. Was there content?"""
        for _ in range(_ATTEMPTS):
            state = self._look()
            if self._swap(state, None):
                return state.content is not None
        raise self._too_fast()

    def _look(self) -> _State:
        """Refuses a token that was overtaken; whether it still holds when we write, the condition of the write says."""
        try:
            answer = self._client.get_object(**self._where)
        except Exception as error:
            if _status(error) == 404 and _code(error) != "NoSuchBucket":
                return _State(None)
            raise
        state = self._parse(answer["ETag"], answer["Body"].read())
        if self._mark.token < state.seen:
            raise refusal(self._mark, state.seen, state.since)
        return state

    def _swap(self, state: _State, content: bytes | None) -> bool:
        """Replace exactly what was looked at. False: somebody was faster; look again."""
        record = {
            "holdfast": 1,
            "resource": self._mark.resource,
            "token": self._mark.token,
            "since": state.since if state.seen == self._mark.token else time.time(),
            "content": content is not None,
            "nonce": os.urandom(8).hex(),  # never twice the same ETag
        }
        condition = {"IfMatch": state.etag} if state.etag else {"IfNoneMatch": "*"}
        body = json.dumps(record).encode() + b"\n" + (content or b"")
        metadata = {"holdfast-token": str(self._mark.token)}
        try:
            self._client.put_object(**self._where, **condition, Body=body, Metadata=metadata)
        except Exception as error:
            if _status(error) in _RETRY and _code(error) != "NoSuchBucket":
                return False
            raise
        return True

    def _parse(self, etag: str, body: bytes) -> _State:
        if not body.startswith(b'{"holdfast": 1, '):
            return _State(etag, 0, None, body)  # an object from before: adopted by the first guarded touch
        line, _, content = body.partition(b"\n")
        try:
            record: Any = json.loads(line)
            resource, token, since = record["resource"], valid_token(record["token"]), float(record["since"])
        except (ValueError, KeyError, TypeError) as error:
            raise Misuse(f"the mark of {self._where} is damaged ({error}); nothing was read or changed") from error
        if resource != self._mark.resource:
            raise Misuse(
                f"{self._where} is guarded by the lock {resource!r}, not by {self._mark.resource!r}: tokens of different locks "
                "do not compare"
            )
        return _State(etag, token, since, content if record["content"] else None)

    def _too_fast(self) -> Unavailable:
        return Unavailable(f"{self._where} is changed too fast by others: {_ATTEMPTS} attempts failed")


def content_of(body: bytes) -> bytes:
    """The content of a guarded object that was read past the guard."""
    return body.partition(b"\n")[2] if body.startswith(b'{"holdfast": 1, ') else body


def _status(error: Exception) -> int:
    return int(getattr(error, "response", {}).get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _code(error: Exception) -> str:
    return str(getattr(error, "response", {}).get("Error", {}).get("Code", ""))


class AsyncObject(InAThread):
    """The same for asyncio; boto3 is waited for in a thread."""

    def __init__(self, client: Any, bucket: str, key: str, ticket: Ticket) -> None:
        self._content = Object(client, bucket, key, ticket)
