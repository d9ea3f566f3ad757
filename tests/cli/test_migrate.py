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


@pytest.mark.parametrize("scheme", ["mysql", "mariadb"])
def test_of_mysql_the_procedures_are_printed_and_the_grant_names_the_database(
    capsys: pytest.CaptureFixture[str], scheme: str
) -> None:
    assert main(["migrate", "--sql", "--url", f"{scheme}://nobody:hush@nowhere/shop"]) == exits.OK
    printed = capsys.readouterr().out
    assert "CREATE TABLE IF NOT EXISTS holdfast_claims" in printed
    assert "DELIMITER //" in printed
    assert "GRANT EXECUTE ON `shop`.*" in printed
    assert "hush" not in printed


def test_no_name_of_a_database_gets_out_of_the_comment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "--sql", "--url", "mysql://nowhere/a%0ADROP%20DATABASE%20b"]) == exits.OK
    assert "DROP DATABASE" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["migrate", "--sql", "--url", "redis://:hush@nowhere"], "no store that creates a schema"),
        (["migrate", "--url", "postgresql://nowhere"], "--sql"),
        (["migrate", "--sql", "--url", "postgresql://nowhere?durability=no"], "full or relaxed"),
        (["migrate", "--sql", "--url", "mysql://:hush@nowhere"], "name the database"),
    ],
)
def test_what_cannot_be_is_told(capsys: pytest.CaptureFixture[str], words: list[str], says: str) -> None:
    assert main(words) == exits.TROUBLE
    told = capsys.readouterr().err
    assert says in told
    assert "hush" not in told
