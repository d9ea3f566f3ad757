"""Results as bytes, and payloads as fingerprints."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any, Protocol

from ...errors import Misuse, Unstorable
from ..coding import MAX_DEPTH, from_json, is_too_deep, to_json


class Codec(Protocol):
    """How a result is kept. Anything with these two will do; what can run code when it is read (pickle) should not."""

    def dumps(self, result: Any, /) -> str | bytes: ...

    def loads(self, kept: bytes, /) -> Any: ...


class Json:
    """The default. Strict: no NaN, and nothing that would come back as something that it was not."""

    def dumps(self, result: Any, /) -> str:
        return to_json(result)

    def loads(self, kept: bytes, /) -> Any:
        return from_json(kept.decode())


class Raw:
    """Bytes as they are."""

    def dumps(self, result: bytes, /) -> bytes:
        return result

    def loads(self, kept: bytes, /) -> bytes:
        return kept


JSON = Json()
RAW = Raw()


def encoded(codec: Codec, result: object, limit: int, key: str) -> bytes:
    """The result as it is kept; `Unstorable` if it cannot be."""
    try:
        kept = codec.dumps(result)
        data = kept.encode() if isinstance(kept, str) else kept
    except Exception as error:
        raise Unstorable(
            f"the result of {key!r}, {type(result).__name__}, cannot be written down ({error}): return plain data, or give "
            "a codec with dumps and loads"
        ) from error
    if codec is JSON and is_too_deep(str(kept)):
        raise Unstorable(
            f"the result of {key!r} is nested more than {MAX_DEPTH} deep: whoever repeats the call could not read it"
        )
    if not isinstance(data, bytes):
        raise Unstorable(f"the codec's dumps must answer with str or bytes, not {type(data).__name__}")
    if len(data) > limit:
        raise Unstorable(
            f"the result of {key!r} takes {len(data)} bytes, and the limit is {limit}: keep it elsewhere and return where, "
            "or raise the limit"
        )
    return data


def fingerprint(payload: object) -> str | None:
    """The same for the same payload, whatever the order of its keys; None for none."""
    if payload is None:
        return None
    if not isinstance(payload, bytes):
        try:
            payload = json.dumps(payload, allow_nan=False, sort_keys=True, separators=(",", ":")).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise Misuse(
                f"a payload must be bytes or plain data, so that it can be compared with that of the next call: {error}"
            ) from error
    return sha256(payload).hexdigest()
