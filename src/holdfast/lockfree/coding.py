"""Events and messages as text; results, which may be bytes, are in `idempotency/codec.py`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from ..errors import Misuse

MAX_BYTES = 1_000_000
# Lists in lists. What Python can just write down it may not be able to read: that depends on who called whom, there as here. And
# of a message that nobody can read, a queue would never come to the next.
MAX_DEPTH = 200
_TEXTS = re.compile(r'"(?:[^"\\]|\\.)*+"')
_OTHERS = re.compile(r"[^\[{}\]]+")

Encode = Callable[[Any], str]
Decode = Callable[[str], Any]


# Strict: no NaN. Made once: json.dumps would make one for each event.
to_json: Encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
from_json: Decode = json.JSONDecoder().decode


class Coder:
    """What users hand us, to text and back; refused before anything is sent."""

    def __init__(self, encode: Encode, decode: Decode, max_bytes: int) -> None:
        if type(max_bytes) is not int or max_bytes < 1:
            raise Misuse(f"max_bytes must be an int of at least 1, not {max_bytes!r:.80}")
        self._encode = encode
        self.decode = decode
        self._max_bytes = max_bytes

    def text(self, data: object, what: str) -> str:
        try:
            text = self._encode(data)
        except RecursionError:
            raise _too_deep(what) from None
        except (TypeError, ValueError) as error:
            raise Misuse(f"{what} cannot be written down: {error}. Nothing was written: {data!r:.80}") from error
        if type(text) is not str or "\0" in text:
            raise Misuse(f"encode() must give a str without NUL for {what}, not {text!r:.80}")
        if self._encode is to_json and is_too_deep(text):
            raise _too_deep(what)
        size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        if size > self._max_bytes:
            raise Misuse(
                f"{what} has {size} bytes, and {self._max_bytes} are allowed (max_bytes). Keep what is large elsewhere, and "
                "its name here. Nothing was written"
            )
        return text


def is_too_deep(text: str) -> bool:
    """Of JSON."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:  # nearly always
        return False
    brackets = _OTHERS.sub("", _TEXTS.sub("", text)).replace("{", "[").replace("}", "]")
    for _ in range(
        MAX_DEPTH
    ):  # what has nothing in it any more goes, all at once: a stranger may have made it of thousands
        brackets = brackets.replace("[]", "")
        if not brackets:
            return False
    return True


def _too_deep(what: str) -> Misuse:
    return Misuse(f"{what} cannot be written down: it is nested more than {MAX_DEPTH} deep. Nothing was written")
