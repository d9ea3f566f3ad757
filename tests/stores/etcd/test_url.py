"""URLs are read strictly, and passwords never shown. No server."""

from __future__ import annotations

import pytest

import holdfast
from holdfast import Misuse
from holdfast.stores.etcd.keys import Keys
from holdfast.stores.etcd.replies import fields
from holdfast.stores.etcd.requests import (
    number,
    varint,
)
from holdfast.stores.etcd.url import parse


def test_a_url_says_where_and_as_whom() -> None:
    target = parse("etcds://al:p%40ss@a,b:1,[::1]:2/team/locks?timeout=0.5&ca=/x.pem")
    assert target.addresses == (("a", 2379), ("b", 1), ("::1", 2))
    assert (target.username, target.password, target.prefix) == ("al", "p@ss", "team/locks")
    assert (target.tls, target.timeout, target.ca) == (True, 0.5, "/x.pem")
    assert "p@ss" not in repr(target) + target.shown()
    assert parse("etcd://").addresses == (("localhost", 2379),)
    assert parse("etcd://").prefix == "holdfast"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("etcd://a,a", "named twice"),
        ("etcd://a:0", "no port"),
        ("etcd://a b", "no host"),
        ("etcd://user@a", "a user and a password"),
        ("etcd://a/b@in", "prefix"),
        ("etcd://a?ttl=5", "takes no option 'ttl'"),
        ("etcd://a?timeout=soon", "timeout must be"),
        ("etcd://a?ca=/x.pem", "etcds://"),
    ],
)
def test_what_is_not_understood_is_refused_at_once(url: str, said: str) -> None:
    if url == "etcd://a/b@in":  # the @ would make a login of what stands before it
        url, said = "etcd://a/b%40in", "prefix"
    with pytest.raises(Misuse, match=said):
        holdfast.connect(url)


def test_two_names_or_prefixes_never_share_a_key() -> None:
    pairs = [("a", "x"), ("a", "in/x"), ("a/in", "x"), ("a", "@in/x"), ("a", "x/"), ("a", "x\x01")]
    keys = [Keys(prefix).of(name) for prefix, name in pairs]
    assert len(set(keys)) == len(pairs)
    for (prefix, name), (inside, line) in zip(pairs, keys, strict=True):
        assert Keys(prefix).name_of(inside + b"w" + b"0" * 32) == name
        assert Keys(prefix).name_of(line + b"0" * 32) == name


def test_numbers_survive_the_wire() -> None:
    for value in (1, 127, 128, 300, 2**31, 2**53, 2**63 - 1):
        assert list(fields(number(3, value))) == [(3, value)]
        assert len(varint(value)) == max(1, -(-value.bit_length() // 7))
