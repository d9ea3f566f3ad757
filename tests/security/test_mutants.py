"""What keeps liars out, each taken out: the tests of it notice."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from holdfast import rule, secret, waitfor
from holdfast.advice import observed
from holdfast.cli import fence
from holdfast.doctor import network as doctor_network
from holdfast.stores.consul import book, replies, sessions
from holdfast.stores.consul import keys as consul_keys
from holdfast.stores.consul import looking as consul_looking
from holdfast.stores.consul import wire as consul_wire
from holdfast.stores.etcd import channel, headers
from holdfast.stores.etcd import looking as etcd_looking
from holdfast.stores.etcd import store as etcd_store
from holdfast.stores.postgresql import connection as postgresql
from holdfast.stores.postgresql import salted
from holdfast.stores.redis import bounds as redis_bounds
from holdfast.stores.redis import cluster, pipe, scanning
from holdfast.stores.redis import connection as redis_connection
from holdfast.stores.zookeeper import line as zookeeper
from holdfast.stores.zookeeper import looking as zookeeper_looking

from .. import test_waitfor as waiting
from ..cli import test_advise_ttl as advise_ttl
from . import test_floods as floods
from . import test_liars as liars
from . import test_names as names
from . import test_parsers as parsers
from . import test_rogue_consul as rogue_consul
from . import test_rogue_doctor as rogue_doctor
from . import test_rogue_redis as rogue_redis
from . import test_rogue_servers as rogue_servers
from . import test_rogue_zookeeper as rogue_zookeeper
from . import test_salted as salts
from . import test_secrets as secrets
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
    "etcd: all headers are remembered": Mutant(
        headers,
        headers.HeaderReader,
        "read",
        " and len(self.known) < KNOWN_AT_MOST",
        "",
        floods.test_headers_that_are_never_the_same_are_not_all_remembered,
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
    "Consul: a book is looked through from each of its middles": Mutant(
        book,
        book.Book,
        "read",
        "rest.partition(between)",
        "re.fullmatch(r'(.*?)(\\n\\],\\[\\n)(.*\\n\\]\\])', rest, re.DOTALL) or ('', '', '')",
        rogue_consul.layout,
    ),
    "Consul: books have no bound together": Mutant(
        consul_looking,
        consul_looking,
        "names",
        "if size > MOST_LISTED:",
        "if False:",
        rogue_consul.names_of_long_books,
    ),
    "Consul: whoever talks is listened to for ever": Mutant(
        consul_wire,
        consul_wire.Wire,
        "ask",
        "if self._now() >= loan.deadline:",
        "if False:",
        lambda: rogue_consul.endless("chunks"),
    ),
    "the doctor: who comes to no end is listened to": Mutant(
        doctor_network,
        doctor_network,
        "heard",
        "deadline = driver.now() + within",
        "deadline = driver.now() + 60",
        lambda: rogue_doctor.kept("the time, of etcd or Consul", "headers"),
    ),
    "ZooKeeper: names are walked through for ever": Mutant(
        zookeeper_looking,
        zookeeper_looking.Looking,
        "names",
        "if self._driver.now() > ends:",
        "if False:",
        rogue_zookeeper.many_names,
    ),
    "passwords are looked for from each ? again": Mutant(
        secret,
        secret,
        "redacted",
        '"".join(_without_secrets(shown))',
        "re.sub('([?&][^=&]*(?:pass|pwd|key)[^=&]*=)[^&#]*', '', shown, flags=re.IGNORECASE)",
        secrets.looked_at_once,
    ),
    "ZooKeeper: digits of all scripts": Mutant(
        zookeeper, zookeeper, "read", "units.isascii() and ", "", parsers.test_nodes_that_others_made_are_passed_over
    ),
    "Redis: more than was asked for": Mutant(
        redis_connection,
        redis_connection.Dialler,
        "open",
        'raise connection.broken(ConnectionError("it answers what nobody has asked"))',
        "continue",
        floods.test_what_a_redis_says_beyond_the_login_is_not_passed_over,
    ),
    "Redis: lists of any length": Mutant(
        redis_bounds,
        redis_bounds._Words,
        "read",
        "if self.listed * _LEAST > most:",
        "if False:",
        parsers.test_an_answer_as_long_as_no_lock_has_is_refused_as_soon_as_it_is_announced,
    ),
    "PostgreSQL: whoever talks is listened to for ever": Mutant(
        postgresql,
        postgresql.BlockingConnection,
        "_converse",
        "if left <= 0:",
        "if False:",
        floods.test_a_conversation_ends_at_its_deadline_whatever_is_said_meanwhile,
    ),
    "PostgreSQL: in line, whatever is said is kept": Mutant(
        postgresql,
        postgresql.LibpqConnection,
        "rows",
        "if self._pieces > self.most_pieces:",
        "if False:",
        lambda: floods.test_who_waits_in_line_without_a_deadline_does_not_read_for_ever("notices"),
    ),
    "PostgreSQL: bells between a question and its answer": Mutant(
        postgresql,
        postgresql.LibpqConnection,
        "turn_deaf",
        "not self.listens and ",
        "",
        floods.test_who_listens_loses_no_bell_while_an_answer_is_on_its_way,
    ),
    "PostgreSQL: a login is hashed as often as they say": Mutant(
        salted,
        salted,
        "_read",
        " or int(found[1]) > MOST_ROUNDS",
        "",
        lambda: salts.test_a_number_is_one_in_plain_digits(salts.OFTEN[0]),
    ),
    "PostgreSQL: numbers are read as libpq does not": Mutant(
        salted,
        salted,
        "_read",
        "found is None or int(found[1]) > MOST_ROUNDS",
        "found is not None and int(found[1]) > MOST_ROUNDS",
        lambda: salts.test_a_number_is_one_in_plain_digits(salts.OFTEN[1]),
    ),
    "PostgreSQL: a login is read in pieces": Mutant(
        salted,
        salted.Login,
        "listen",
        "return end",
        "return 0",
        salts.test_until_it_is_whole_something_is_missing,
    ),
    "PostgreSQL: nobody looks before libpq does": Mutant(
        postgresql,
        postgresql.LibpqConnection,
        "step",
        "if not self._login.is_whole(self.pgconn):",
        "if False:",
        lambda: salts.not_kept("the doctor"),
    ),
    "PostgreSQL: what libpq waits for is not waited for": Mutant(
        salted,
        salted.Login,
        "is_whole",
        "lacking = self.listen(said)",
        "lacking = 0 * self.listen(said)",
        salts.test_what_comes_slowly_is_waited_for,
    ),
    "PostgreSQL: whoever was answered may ask for something else": Mutant(
        salted,
        salted.Login,
        "listen",
        "if kind not in _AFTER.get(last, ()):",
        "if False:",
        lambda: salts.test_who_was_answered_does_not_ask_again(salts.MECHANISMS, salts.MD5),
    ),
    "PostgreSQL: a word may be longer than libpq reads it": Mutant(
        salted,
        salted,
        "_read",
        ".fullmatch(body) if",
        ".match(body) if",
        salts.test_nor_hides_something_behind_what_libpq_reads_only_to_its_middle,
    ),
    "PostgreSQL: what is no word of a login is libpq's affair": Mutant(
        salted,
        salted,
        "_read",
        'if said[0] not in b"RvE":\n        raise _strange(said)',
        'if said[0] not in b"RvE":\n        return _ERROR, len(said)',
        lambda: salts.misled("behind the no", "threads"),
    ),
    "PostgreSQL: a rest is taken for an error": Mutant(
        salted,
        salted,
        "_read",
        "length >= 1 << 16 or not said[5:6].isupper()",
        "False",
        lambda: salts.test_the_rest_of_a_word_is_none(salts.MECHANISMS),
    ),
    "PostgreSQL: who has hung up is looked at all the time": Mutant(
        salted,
        salted.Login,
        "is_whole",
        "if lacking and has_hung_up(line):",
        "if False:",
        salts.hung_up_in_a_word,
    ),
    "Redis: what cannot be read is not looked for": Mutant(
        redis_connection,
        redis_connection.Connection,
        "next",
        "except UNREADABLE as error:",
        "except ProtocolError as error:",
        lambda: rogue_redis.a_map(rogue_redis.MAPS[0], b"+PONG\r\n", "threads"),
    ),
    "etcd: names without an end": Mutant(
        etcd_looking,
        etcd_looking,
        "names",
        " or size > MOST_LISTED",
        "",
        liars.test_names_without_an_end_come_to_one,
    ),
    "Redis: a cursor may be anything": Mutant(
        scanning,
        scanning,
        "is_scanned",
        "if not reply[0].isdigit() or len(reply[0]) > _DIGITS:",
        "if False:",
        lambda: rogue_redis.test_what_is_no_cursor(b"7" * 21),
    ),
    "Redis Cluster: every node has a bound of its own": Mutant(
        scanning,
        scanning.Scan,
        "__init__",
        "after._size if after else 0",
        "0",
        rogue_redis.test_the_nodes_of_a_cluster_have_one_bound_together,
    ),
    "Redis Cluster: slots are gone through as often as they are told": Mutant(
        cluster,
        cluster.ClusterWire,
        "parts",
        "if told > SLOTS:",
        "if False:",
        rogue_redis.test_slots_that_are_told_a_thousand_times_are_not_gone_through,
    ),
    "Redis: nor in asyncio": Mutant(
        pipe,
        pipe.Pipe,
        "_gets",
        "except UNREADABLE as error:",
        "except ProtocolError as error:",
        rogue_redis.maps_in_asyncio_are_told_quietly,
    ),
    "fence --apply: MySQL may greet as slowly as it likes": Mutant(
        fence,
        fence,
        "_mysql",
        "connection.deadline = boot_time() + _LOGIN",
        "connection.deadline = boot_time() + 7",
        lambda: rogue_servers.triggers("slowly"),
    ),
    "advise ttl: an exporter may dribble": Mutant(
        observed,
        observed,
        "_fetched",
        "told.result(_PATIENCE)",
        "told.result()",
        lambda: advise_ttl.dribbled(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"),
    ),
    "deadlocks: who leaves one line leaves the others as well": Mutant(
        waitfor,
        waitfor.WaitGraph,
        "_stuck",
        "lines += stands[owner]",
        "pass",
        waiting.test_who_goes_on_leaves_every_line_that_they_stand_in,
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
