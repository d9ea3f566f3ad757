"""`holdfast migrate` prints what a store would create, and what its user needs, and contacts nobody for that."""

from __future__ import annotations

import json
import re
from pathlib import Path

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


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://app:hush@nowhere?prefix=shop", "ACL SETUSER app reset on >PASSWORD ~shop:{* "),
        ("redis://app:hush@nowhere/2?replicas=1", " +select +wait"),
        ("redis+cluster://app:hush@nowhere", " +cluster|slots +asking"),
        ("redis+sentinel://app:hush@nowhere/main", "+sentinel|get-master-addr-by-name"),
        ("redlock://app:hush@a,b,c?prefix=shop", " ~shop:redlock:{* "),
        ("etcd://app:hush@nowhere/shop", "etcdctl role grant-permission holdfast-shop --prefix=true readwrite shop/"),
        ("etcds://nowhere/shop?cert=/c&cert_key=/k", "etcdctl user add locker --no-password"),
        (
            "zookeeper://app:hush@nowhere/apps/shop",
            "addauth digest app:PASSWORD\ncreate /apps\ncreate /apps/shop\nsetAcl",
        ),
        ("zookeeper://app:hush@nowhere/shop?auth=sasl", "setAcl /shop sasl:app:cdrwa"),
        ("zookeepers://nowhere/shop?cert=/c&cert_key=/k", "setAcl /shop x509:SUBJECT:cdrwa"),
        ("consul://:hush@nowhere/shop", 'session "holdfast-shop" { policy = "write" }'),
        ("consul://:hush@nowhere/shop", "# Add node=holdfast-shop to the application's URL."),
        ("consul://:hush@nowhere/shop?node=mine", 'session "mine" { policy = "write" }'),
        ("postgresql://app:hush@nowhere/db?schema=shop", 'DELETE ON "shop".locks TO "app";'),
        ("mysql://app:hush@nowhere/shop", "GRANT EXECUTE ON PROCEDURE `shop`.holdfast_claim_1 TO 'app'@'%';"),
    ],
)
def test_the_rights_that_a_user_needs_are_printed_and_no_password(
    capsys: pytest.CaptureFixture[str], url: str, says: str
) -> None:
    assert main(["migrate", "--acl", "--url", url]) == exits.OK
    printed = capsys.readouterr().out
    assert says in printed
    assert "hush" not in printed


@pytest.mark.parametrize("url", ["redis://nowhere", "redlock://a,b,c", "redis+sentinel://nowhere/main?db=3&replicas=1"])
def test_no_right_of_redis_is_a_category_or_a_wildcard(capsys: pytest.CaptureFixture[str], url: str) -> None:
    """@scripting, say, would bring SCRIPT FLUSH along, and @connection CLIENT KILL."""
    assert main(["migrate", "--acl", "--url", url]) == exits.OK
    printed = capsys.readouterr().out
    assert not {"@", "~*", "&*", "allkeys", "allchannels", "allcommands", "nopass"} & set(printed.split())
    assert "+@" not in printed


def test_a_store_without_users_of_its_own_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "--acl", "--url", "sqlite:///tmp/locks.db"]) == exits.TROUBLE
    assert "its file's permissions" in capsys.readouterr().err


SECURITY = (Path(__file__).parents[2] / "docs" / "security.md").read_text()


@pytest.mark.parametrize(
    ("url", "shown"), re.findall(r"migrate --acl --url '([^'\n]*)'\n```\n```\n(.*?)```", SECURITY, re.DOTALL)
)
def test_the_documented_rights_are_those_that_are_printed(
    capsys: pytest.CaptureFixture[str], url: str, shown: str
) -> None:
    assert main(["migrate", "--acl", "--url", url]) == exits.OK
    assert capsys.readouterr().out == shown


def test_the_rights_of_every_store_are_documented() -> None:
    told = re.findall(r"migrate --acl --url '(\w+)://", SECURITY)
    assert {"redis", "redlock", "etcd", "zookeeper", "zookeepers", "consul", "postgresql", "mysql"} <= set(told)
