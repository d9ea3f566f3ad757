"""HTTP: GET with its ETag, PUT with If-Match; 412 means that somebody else was first (RFC 9110)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...databases.wire import settle
from ...errors import Misuse, Unsupported
from .cells import Cell
from .retry import ABSENT, MAX_VERSION, valid_version


def etag(version: int) -> str:
    """The ETag of a version, as `IfMatchMiddleware` reads it.

    >>> etag(7)
    '"7"'
    """
    return f'"{valid_version(version, "a resource")}"'


def version_of(header: str) -> int | None:
    """What If-Match asks for: a version, or None for `*` (whatever it is, if it is there)."""
    value = header.strip()
    if value == "*":
        return None
    digits = value[1:-1]
    if not (
        len(value) > 2 and value[0] == value[-1] == '"' and digits.isascii() and digits.isdigit() and len(digits) < 20
    ):
        raise Misuse(f'If-Match must be one ETag that this service gave, such as "7", not {value!r:.80}')
    if int(digits) >= MAX_VERSION:
        raise Misuse(f"there is no version {digits}")
    return int(digits)


class HttpCells:
    def __init__(self, client: Any, headers: Mapping[str, str] | None = None) -> None:
        if not hasattr(client, "request"):
            raise Misuse(f"a client of httpx is wanted, not {type(client).__name__}")
        self._client = client
        self._headers = dict(headers or {})

    def valid_key(self, key: Any) -> str:
        if not key or isinstance(key, (bytes, int)):
            raise Misuse(f"a URL is wanted, not {key!r:.80}")
        return str(key)

    def valid_expected(self, expected: object) -> str | None:
        if expected not in (None, ABSENT) and (not isinstance(expected, str) or not expected.startswith('"')):
            raise Misuse(f'a strong ETag is wanted, such as "7" with its quotes, not {expected!r:.80}')
        return expected if expected is None else str(expected)

    async def read(self, keys: Sequence[str]) -> list[Cell]:
        if len(keys) > 1:
            raise Unsupported("HTTP has no transaction over several URLs: let one resource have what changes together")
        response = await settle(self._client.request("GET", keys[0], headers=self._headers))
        if response.status_code == 404:
            return [Cell(keys[0], ABSENT, None)]
        response.raise_for_status()
        tag = response.headers.get("etag")
        if tag is None or tag.startswith("W/"):
            raise Misuse(f"{keys[0]} answers with no strong ETag ({tag}): the service does not tell its versions apart")
        return [Cell(keys[0], tag, response.content, response.headers.get("content-type"))]

    def after(self, before: object, answer: object) -> bytes:
        if not isinstance(answer, (str, bytes)):
            raise Misuse(f"a change must answer with str or bytes, or None, not with {type(answer).__name__}")
        return answer.encode() if isinstance(answer, str) else answer

    async def write(self, cells: Sequence[Cell], answers: Sequence[Any]) -> bool:
        (cell,), (answer,) = cells, answers
        guard = {"if-none-match": "*"} if cell.seen == ABSENT else {"if-match": cell.seen}
        kind = {"content-type": cell.kind} if cell.kind else {}
        headers = {**kind, **self._headers, **guard}
        content = self.after(None, answer)
        response = await settle(self._client.request("PUT", cell.key, content=content, headers=headers))
        if response.status_code == 412:
            return False
        response.raise_for_status()
        return True
