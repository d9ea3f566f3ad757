"""`holdfast migrate --sql` prints what a store would create, and needs no database for that."""

from __future__ import annotations

import json

import pytest

from holdfast.cli import exits, main


def test_the_schema_is_printed_for_the_schema_that_the_url_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "--sql", "--url", "postgresql://nobody:hush@nowhere/db?schema=mine"]) == exits.OK
    printed = capsys.readouterr().out
    assert 'CREATE SCHEMA IF NOT EXISTS "mine";' in printed
    assert "hush" not in printed
    assert '"holdfast"' not in printed


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "--sql", "--json", "--url", "postgres://nowhere"]) == exits.OK
    assert "CREATE TABLE" in json.loads(capsys.readouterr().out)["sql"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["migrate", "--sql", "--url", "redis://:hush@nowhere"], "no store that creates a schema"),
        (["migrate", "--url", "postgresql://nowhere"], "--sql"),
        (["migrate", "--sql", "--url", "postgresql://nowhere?durability=no"], "durable or relaxed"),
    ],
)
def test_what_cannot_be_is_told(capsys: pytest.CaptureFixture[str], words: list[str], says: str) -> None:
    assert main(words) == exits.TROUBLE
    told = capsys.readouterr().err
    assert says in told
    assert "hush" not in told
