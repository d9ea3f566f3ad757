"""What keeps liars out, each taken out: the tests of it notice."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from holdfast import rule, secret
from holdfast.stores.consul import book, replies, sessions
from holdfast.stores.consul import keys as consul_keys
from holdfast.stores.etcd import channel
from holdfast.stores.etcd import looking as etcd_looking
from holdfast.stores.etcd import store as etcd_store
from holdfast.stores.redis import replies as redis
from holdfast.stores.zookeeper import line as zookeeper

from . import test_liars as liars
from . import test_names as names
from . import test_parsers as parsers
from . import test_urls as urls

FAILS = (Exception, pytest.fail.Exception)


class Mutant(NamedTuple):
    module: ModuleType
    owner: Any
    name: str
    what: str
    instead: str
    notices: Callable[[], None]


def spoil(monkeypatch: pytest.MonkeyPatch, mutant: Mutant) -> None:
    """The function again, from its own text with one thing changed."""
    raw = inspect.getattr_static(mutant.owner, mutant.name)
    text = inspect.getsource(raw)
    assert text.count(mutant.what) == 1, f"{mutant.what!r} is not in {mutant.name} any more"
    lines = text.replace(mutant.what, mutant.instead).splitlines()
    indent = len(lines[0]) - len(lines[0].lstrip())
    made: dict[str, Any] = {}
    exec("\n".join(line[indent:] for line in lines), vars(mutant.module), made)  # noqa: S102  # our own source
    monkeypatch.setattr(mutant.owner, mutant.name, made[mutant.name])


def again(kind: str, *seeds: int) -> Callable[[], None]:
    """One of them is enough: nonces are different in every run, and so is what is made of them."""

    def ask() -> None:
        for seed in seeds:
            liars.test_what_escaped_once_does_not_again(kind, seed)

    return ask


MUTANTS = {
    "Redis: any token": Mutant(
        rule, rule, "given_token", "if not 0 < token <= MAX_TOKEN", "if False", again("redis", 0, 5, 10)
    ),
    "Consul: any token": Mutant(
        rule, rule, "given_token", "if not 0 < token <= MAX_TOKEN", "if False", again("consul", 22, 112, 257)
    ),
    "etcd: an answer of another kind": Mutant(
        etcd_store,
        etcd_store.EtcdStore,
        "_seen",
        "with self._explained():",
        "if True:",
        again("etcd", *range(8, 40)),
    ),
    "etcd: names in circles": Mutant(
        etcd_looking,
        etcd_looking,
        "names",
        "if more and page.found[-1].key < start:",
        "if False:",
        liars.test_names_that_go_round_in_circles_come_to_an_end,
    ),
    "etcd: a holder who cannot be put out": Mutant(
        etcd_looking,
        etcd_looking,
        "evict",
        "for _ in range(_ATTEMPTS):",
        "while True:",
        liars.test_who_cannot_be_put_out_is_told_so,
    ),
    "etcd: headers are text": Mutant(
        channel,
        channel.Channel,
        "_note_status",
        "decode(errors='replace')",
        "decode()",
        parsers.test_http2_is_understood_or_the_connection_is_over,
    ),
    "Consul: any text is an id": Mutant(
        sessions,
        sessions.Sessions,
        "_create",
        "session_id)",
        "lambda said: str(said['ID']))",
        again("consul", 33, 37, 62),
    ),
    "Consul: a number without end": Mutant(
        replies, replies, "told", "OverflowError, ", "", parsers.test_json_of_another_kind_is_unavailable
    ),
    "Consul: all below our prefix is ours": Mutant(
        consul_keys,
        consul_keys.Keys,
        "name_of",
        ' if quoted.endswith(":") and "/" not in quoted else None',
        "",
        names.test_a_tenant_within_the_prefix_of_another_is_not_listed_there,
    ),
    "Consul: half an entry": Mutant(
        book,
        book.Book,
        "read",
        "if not all(map(_IN_LINE.match, book.line.values())):",
        "if False:",
        parsers.test_a_book_that_others_wrote_is_ours_or_none_of_ours,
    ),
    "ZooKeeper: digits of all scripts": Mutant(
        zookeeper, zookeeper, "read", "units.isascii() and ", "", parsers.test_nodes_that_others_made_are_passed_over
    ),
    "Redis: lists of any length": Mutant(
        redis,
        redis.Bounds,
        "check",
        "if _LONG_LIST.search(self._tail + data):",
        "if False:",
        parsers.test_an_answer_as_long_as_no_lock_has_is_refused_as_soon_as_it_is_announced,
    ),
    "a password that is shown": Mutant(
        secret,
        secret.Secret,
        "__repr__",
        "return HIDDEN",
        "return self.plain",
        urls.test_a_target_never_shows_its_password,
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_tests_notice(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, MUTANTS[mutant])
    with pytest.raises(FAILS):
        MUTANTS[mutant].notices()
