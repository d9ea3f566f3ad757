"""Names of locks become few enough for time series."""

from __future__ import annotations

import pytest

from holdfast.observe.naming import LIMIT, LONGEST, OTHER, Names, template


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("invoice:42", "invoice:{n}"),
        ("invoice:42/line:7", "invoice:{n}/line:{n}"),
        ("nightly", "nightly"),
        ("user/3f2b8c1e-9d4a-4b7e-8f00-1a2b3c4d5e6f", "user/{id}"),
        ("blob:9F86D081884C7D659A2FEAA0C55AD015", "blob:{id}"),
        ("1753900000000000", "{n}"),
        ("decade:feed", "decade:feed"),
        ("größe:7", "größe:{n}"),
    ],
)
def test_ids_are_cut_and_words_stay(name: str, short: str) -> None:
    assert template(name) == short


def test_there_are_never_more_names_than_the_limit_however_they_are_made() -> None:
    names = Names(lambda name: name)
    told = {names(f"customer {n}") for n in range(3 * LIMIT)}
    assert len(told) == LIMIT + 1
    assert OTHER in told
    assert names("customer 0") == "customer 0", "who came first keeps its name"


def test_a_long_name_is_cut() -> None:
    assert len(Names()("x" * 500)) == LONGEST


def test_a_name_plays_no_tricks_with_the_terminal_of_who_looks_at_metrics() -> None:
    assert Names()("a\x1b[2J\nb") == "a?[{n}J?b"
