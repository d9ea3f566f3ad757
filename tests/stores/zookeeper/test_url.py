"""ZooKeeper URLs: what they may say, and what is refused at once."""

from __future__ import annotations

import pytest

import holdfast
from holdfast import Misuse
from holdfast.stores.zookeeper.url import parse


def test_all_parts_are_understood() -> None:
    target = parse(
        "zookeepers://us%3Aer:pa%40ss@a,b:2182,[::1]:3/apps/billing?ca=/ca.pem&timeout=1.5&check_hostname=no"
    )
    assert target.addresses == (("a", 2181), ("b", 2182), ("::1", 3))
    assert target.hosts == "a:2181,b:2182,[::1]:3"
    assert (target.root, target.username, target.password) == ("/apps/billing", "us:er", "pa@ss")
    assert (target.auth, target.acl, target.tls, target.ca) == ("digest", "creator", True, "/ca.pem")
    assert (target.timeout, target.check_hostname) == (1.5, False)
    assert parse("zookeeper://a").root == "/holdfast"
    assert parse("zookeeper://u:p@a?auth=sasl&acl=open").acl == "open"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("zookeeper://a:0", "no port"),
        ("zookeeper://a:b", "no host"),
        ("zookeeper://a,a", "named twice"),
        ("zookeeper://a//b", "name a node"),
        ("zookeeper://a/../b", "name a node"),
        ("zookeeper://a/zookeeper/x", "name a node"),
        ("zookeeper://u@a", "user:password@"),
        ("zookeeper://a?timeout=0", "timeout must be"),
        ("zookeeper://a?timeout=nan", "timeout must be"),
        ("zookeeper://a?auth=digest", "with user:password@"),
        ("zookeeper://u:p@a?auth=kerberos", "digest or sasl"),
        ("zookeeper://a?acl=creator", "needs user:password@"),
        ("zookeeper://a?ca=/x", "write zookeepers://"),
        ("zookeeper://a?check_hostname=no", "zookeepers:// only"),
        ("zookeepers://a?cert=/x", "come together"),
        ("zookeeper://a?tll=3", "takes no option 'tll'"),
    ],
)
def test_what_is_not_understood_is_refused_at_once(url: str, message: str) -> None:
    with pytest.raises(Misuse, match=message):
        holdfast.connect(url)


def test_a_password_is_never_shown() -> None:
    target = parse("zookeeper://user:geheim@a:1/x")
    assert "geheim" not in repr(target) + target.shown() + f"{target}"
    with holdfast.connect("zookeeper://user:geheim@127.0.0.1:1/x?timeout=0.1") as locks:
        with pytest.raises(holdfast.Unavailable) as failed:
            locks.lock("x").acquire(timeout=0)
        assert "geheim" not in str(failed.value) + repr(locks)
