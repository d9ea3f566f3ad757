"""What is written down can be read again, wherever that is done."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.errors import Misuse, Unstorable
from holdfast.lockfree.coding import MAX_BYTES, MAX_DEPTH, Coder, from_json, is_too_deep, to_json
from holdfast.lockfree.idempotency.codec import JSON, encoded, fingerprint

from ..properties import examples, given, st

CODER = Coder(to_json, from_json, MAX_BYTES)


def nested(deep: int, inside: Any = 1) -> Any:
    for at in range(deep):
        inside = {"k": inside} if at % 2 else [inside]
    return inside


def below(frames: int, call: Callable[[], Any]) -> Any:
    return below(frames - 1, call) if frames else call()


@pytest.mark.parametrize("deep", [MAX_DEPTH + 1, 900, 100_000])
def test_what_a_reader_elsewhere_might_not_manage_is_not_written(deep: int) -> None:
    """Of a message that nobody can read, a queue would never come to the next. A stranger may have nested it."""
    with pytest.raises(Misuse, match=f"nested more than {MAX_DEPTH} deep"):
        CODER.text(nested(deep), "the message for 'k'")
    with pytest.raises(Unstorable):
        encoded(JSON, nested(deep), MAX_BYTES, "k")


def test_what_is_written_is_read_by_whoever_is_called_by_many() -> None:
    text = CODER.text(nested(MAX_DEPTH), "it")
    assert below(600, lambda: from_json(text)) == nested(MAX_DEPTH)
    assert below(600, lambda: JSON.loads(encoded(JSON, nested(MAX_DEPTH), MAX_BYTES, "k"))) == nested(MAX_DEPTH)


def test_a_payload_that_cannot_be_written_down_is_told_as_such() -> None:
    with pytest.raises(Misuse, match="plain data"):
        fingerprint(nested(100_000))


brackets = st.recursive(
    st.sampled_from([1, "]", "[[", '"', '\\"[', "{", "}\\"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["[", '"{', "\\"]), inner, max_size=3)
    ),
)


@examples(50)
@given(inside=brackets, deep=st.integers(MAX_DEPTH - 6, MAX_DEPTH + 2))
def test_texts_and_neighbours_do_not_count(inside: Any, deep: int) -> None:
    data = nested(deep, inside)
    assert is_too_deep(json.dumps(data)) is (depth(data) > MAX_DEPTH)


def depth(data: Any) -> int:
    if isinstance(data, dict):
        data = list(data.values())
    return 1 + max(map(depth, data), default=0) if isinstance(data, list) else 0


def test_what_is_wide_costs_little() -> None:
    wide = json.dumps(nested(MAX_DEPTH - 2, [[]] * 200_000))
    began = time.process_time()
    assert not is_too_deep(wide)
    assert time.process_time() - began < 3
