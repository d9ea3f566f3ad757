"""Names and URLs, without a server."""

from __future__ import annotations

import pytest

from holdfast import Misuse
from holdfast.stores.redis.keys import name_of, pack, slot, state_key
from holdfast.stores.redis.url import parse

from ...properties import given, st

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=60)


@given(names)
def test_a_name_comes_back_from_its_key(name: str) -> None:
    key = state_key(b"hf", name)
    assert name_of(b"hf", key) == name
    assert key.count(b"{") == key.count(b"}") == 1


@given(names)
def test_all_keys_of_a_name_share_a_slot(name: str) -> None:
    key = state_key(b"hf", name)
    assert slot(key) == slot(key + b":entries") == slot(key + b":line")


def test_slots_are_those_of_redis() -> None:
    assert slot(b"x{123456789}y") == 12739  # from the cluster's specification


def test_a_request_is_packed_as_the_server_reads_it() -> None:
    assert pack("SET", b"a", 12) == b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$2\r\n12\r\n"


def test_a_url_is_read_whole() -> None:
    target = parse("rediss://me:p%40ss@db.example:7000/3?timeout=0.5&retention=60&replicas=1&prefix=app&ca=/ca.pem")
    assert target.addresses == (("db.example", 7000),)
    assert (target.username, target.password, target.database, target.tls) == ("me", "p@ss", 3, True)
    assert (target.timeout, target.retention, target.replicas, target.prefix, target.ca) == (
        0.5,
        60,
        1,
        "app",
        "/ca.pem",
    )
    assert "p@ss" not in repr(target)
    assert parse("unix:///run/r.sock?db=2").addresses == (("/run/r.sock", 0),)
    assert parse("redis+sentinel://a,b:1/main/4")._replace(addresses=()) == parse("redis+sentinel://c/main/4")._replace(
        addresses=()
    )
    assert parse("redis://[::1]:7").addresses == (("::1", 7),)


@pytest.mark.parametrize(
    "url",
    [
        "redis://a,b",
        "redis://a:0",
        "redis://a:99999",
        "redis://a b",
        "redis://a/x",
        "redis://a?bogus=1",
        "redis://a?timeout=0",
        "redis://a?timeout=nan",
        "redis://a?replicas=-1",
        "redis://a?prefix={x}",
        "unix://",
        "redis+sentinel://a,b",
        "redis+sentinel://a,a/main",
        "redis+cluster://a,b/2",
        "redlock://a,b,c?replicas=1",
    ],
)
def test_a_url_that_makes_no_sense_is_refused(url: str) -> None:
    with pytest.raises(Misuse):
        parse(url)
