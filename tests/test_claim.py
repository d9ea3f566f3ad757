"""What may be a name, a ttl, a timeout, a unit; and that a nonce is new and never shown."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from holdfast.claim import (
    MAX_NAME_BYTES,
    MAX_TIMEOUT,
    MAX_TTL,
    MIN_TTL,
    Claim,
    Grant,
    Place,
    new_holder,
    valid_name,
    valid_note,
    valid_prefix,
    valid_timeout,
    valid_ttl,
    valid_units,
)
from holdfast.errors import Misuse

from .properties import given, st

ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.lists(st.integers())
)


@given(st.text(min_size=1))
def test_a_name_is_any_text_of_up_to_512_bytes_without_nul(text: str) -> None:
    try:
        fits = len(text.encode()) <= MAX_NAME_BYTES and "\0" not in text
    except UnicodeEncodeError:
        fits = False
    if fits:
        assert valid_name(text) is text
    else:
        with pytest.raises(Misuse):
            valid_name(text)


def refusal(check: Callable[..., object], *values: object) -> str:
    """The message of a Misuse; empty if it was accepted. Anything else that is raised is a mistake of ours."""
    try:
        check(*values)
    except Misuse as error:
        return str(error)
    return ""


@given(ANYTHING)
def test_whatever_is_given_is_accepted_or_refused_in_one_short_sentence(value: object) -> None:
    for check in (valid_ttl, valid_timeout, valid_name, valid_prefix):
        assert len(refusal(check, value)) < 300
    assert (refusal(valid_units, value, 10) == "") is (type(value) is int and 1 <= value <= 10)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_number_that_python_will_not_print_is_refused_all_the_same(sign: int) -> None:
    huge = sign * 10**5000
    assert "1e+18" in refusal(valid_ttl, huge)
    if sign < 0:
        assert "-1e+18" in refusal(valid_timeout, huge)
    else:
        assert valid_timeout(huge) == MAX_TIMEOUT
    assert "1e+18" in refusal(valid_units, huge, 10)


@given(st.one_of(st.integers(), st.floats()))
def test_a_valid_ttl_is_within_its_bounds_and_itself(value: float) -> None:
    """Elsewhere: a bad ttl deleted the lock and said True, or gave no exclusion at all."""
    if not math.isnan(value) and MIN_TTL <= value <= MAX_TTL:
        assert valid_ttl(value) == value
    else:
        with pytest.raises(Misuse):
            valid_ttl(value)


@given(st.one_of(st.integers(), st.floats()))
def test_a_valid_timeout_is_itself_and_a_huge_one_ten_years(value: float) -> None:
    if math.isfinite(value) and value >= 0:
        assert valid_timeout(value) == min(value, MAX_TIMEOUT)
    else:
        with pytest.raises(Misuse):
            valid_timeout(value)
    assert valid_timeout(None) is None


def test_the_longest_timeout_of_threading_is_accepted() -> None:
    assert valid_timeout(threading.TIMEOUT_MAX) == MAX_TIMEOUT


def test_a_note_cannot_play_tricks_with_a_terminal() -> None:
    assert valid_note("10.0.0.7:80 é", "a note") == "10.0.0.7:80 é"
    for bad in ("\x1b[2J", "a\nb", "\u202e", "\ud800", "x" * 1025):
        with pytest.raises(Misuse, match="a note"):
            valid_note(bad, "a note")


def test_a_holder_is_new_for_every_attempt() -> None:
    seen = {new_holder() for _ in range(1000)}
    assert len(seen) == 1000
    assert all(len(holder) == 32 for holder in seen)


def test_the_nonce_is_not_shown_by_anything_that_carries_it() -> None:
    claim = Claim("x", new_holder(), "h/1/t", 30.0)
    for carrier in (claim, Grant(claim, 5, 30.0), Place(claim, 1.0)):
        for text in (repr(carrier), str(carrier), f"{carrier}", f"{[carrier]}"):
            assert claim.holder not in text
            assert "'x'" in text


def test_a_forked_child_hands_out_none_of_its_parents_nonces() -> None:
    script = """if True:
        import os
        from holdfast.claim import new_holder
        mine = {new_holder()}  # and with it, those that are kept ready
        child = os.fork()
        if child:
            os.waitpid(child, 0)  # so that their lines do not mix
        print(*(new_holder() for _ in range(200)), flush=True)
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    first, second = (line.split() for line in done.stdout.splitlines())
    assert len({*first, *second}) == 400
