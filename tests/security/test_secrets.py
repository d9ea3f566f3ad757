"""No password is shown: not in an error, not in its causes, not in the variables of our frames."""

from __future__ import annotations

import asyncio
import logging
import pickle
import socket
import sqlite3
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pytest

import holdfast
import holdfast.aio
from holdfast import HoldfastError, Misuse, events, secret
from holdfast.claim import Claim, Holding, Snapshot
from holdfast.in_the_way import in_the_way
from holdfast.secret import Secret, redacted
from holdfast.stores.consul import open_store as consul
from holdfast.stores.etcd.url import parse as etcd
from holdfast.stores.mysql.url import parse as mysql
from holdfast.stores.postgresql.url import parse as postgresql
from holdfast.stores.redis.url import parse as redis
from holdfast.stores.zookeeper.url import parse as zookeeper
from holdfast.testing import servers
from holdfast.testing.conformance import claim

from ..properties import example, examples, given, st
from ..stores.contract import Hand
from .rogue import WORLDS, rogue

PASSWORD = "hunter2"
OURS = str(Path(holdfast.__file__).parent)
SCHEMES = (
    "redis",
    "rediss",
    "redis+sentinel",
    "redis+cluster",
    "redlock",
    "etcd",
    "etcds",
    "zookeeper",
    "consul",
    "postgresql",
    "mysql",
)


def chain(error: BaseException) -> Iterator[BaseException]:
    """It, and all that an error tracker would follow, suppressed or not."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield one
            todo += [one.__cause__, one.__context__]


def everything_told(error: BaseException) -> str:
    """Messages, and the variables of the frames in holdfast; the caller's own are the caller's."""
    told = []
    for one in chain(error):
        told += [str(one), repr(one)]
        for frame, _ in traceback.walk_tb(one.__traceback__):
            if frame.f_code.co_filename.startswith(OURS):
                told += [f"{frame.f_code.co_qualname}: {key}={value!r}" for key, value in frame.f_locals.items()]
    return "\n".join(told)


def refused(url: str) -> BaseException:
    with pytest.raises(HoldfastError) as found:
        holdfast.connect(url)
    return found.value


def looked_at_once() -> None:
    began = time.process_time()
    for text in ("?pass" * 900, "?pass=#" * 900, "#?" * 900):
        secret.redacted(f"HTTP Error 404: {text}")
    assert time.process_time() - began < 0.5


@pytest.mark.timeout(60)
def test_what_a_server_says_is_looked_through_once_for_passwords() -> None:
    """Of an exporter's error it is, and looked through again from each ? it would take hours."""
    looked_at_once()


def test_a_secret_is_shown_as_stars_and_works_like_the_text_it_is() -> None:
    secret = Secret(PASSWORD)
    assert PASSWORD not in f"{secret} {secret!r} {secret!s} {secret:>20} {[secret]} {(secret,)}"
    assert secret == PASSWORD
    assert secret.encode() == PASSWORD.encode()
    assert type(secret.plain) is str
    assert Secret(secret) == PASSWORD


@pytest.mark.parametrize(
    "url",
    [
        *(f"{scheme}://{{u}}:one?{PASSWORD}@127.0.0.1:1/x" for scheme in SCHEMES),
        *(f"{scheme}://{{u}}:{PASSWORD}?two@127.0.0.1:1/x" for scheme in SCHEMES),
        *(f"{scheme}://{{u}}:{PASSWORD}" for scheme in SCHEMES),
        *(f"{scheme}://{{u}}:1?{PASSWORD}@127.0.0.1:1/x" for scheme in SCHEMES),
        f"postgresql://u:{PASSWORD}%zz@127.0.0.1:1/db",
        f"postgresql://u:parameter{PASSWORD}%zz@127.0.0.1:1/db",
        f"postgresql://u:one@{PASSWORD}@127.0.0.1:1/db",
        f"postgresql://u:one/{PASSWORD}@127.0.0.1:1/db",
        f"postgresql://u:1/{PASSWORD}@127.0.0.1:1/db",
        f"REDIS://:one\n{PASSWORD}@h",
        f"sqlite://user:{PASSWORD}@h/x",
        f"sqlite:///tmp/x.db?password={PASSWORD}",
        f"rediss://:{PASSWORD}@127.0.0.1:1?ca=/no/such/file&nonsense=1",
    ],
)
def test_a_url_that_is_not_understood_shows_nothing_of_its_password(url: str) -> None:
    error = refused(url.replace("{u}", "" if url.startswith("consul") else "user"))
    assert isinstance(error, Misuse)
    assert PASSWORD not in everything_told(error)


# Letters that mean something in a URL come often; the password itself is always recognisable.
PIECES = st.lists(
    st.sampled_from(
        ["?", "@", "/", "#", ":", "%", "%zz", "%2", ",", "&", "=", "[", "]", " ", "\n", "é", "a", "1", "\x1b"]
    ),
    max_size=4,
).map("".join)


@examples(150)
@given(scheme=st.sampled_from(SCHEMES), before=PIECES, after=PIECES, tail=PIECES)
@example(scheme="postgresql", before="", after="%zz", tail="")
@example(scheme="redis", before="?", after="", tail="")
@example(scheme="postgresql", before="1/", after="", tail="")
def test_whatever_a_password_is_made_of_it_is_in_no_error(scheme: str, before: str, after: str, tail: str) -> None:
    user = "" if scheme == "consul" else "user"
    url = f"{scheme}://{user}:{before}{PASSWORD}{after}@127.0.0.1:1/{tail}"
    assert PASSWORD not in redacted(url)
    try:
        with holdfast.connect(url) as locks:
            store = locks._engine.store
            wire = getattr(store, "_wire", None)
            told = f"{locks!r} {locks._engine.where} {getattr(store, '_target', '')!r} {getattr(wire, 'target', '')!r}"
    except HoldfastError as error:
        told = everything_told(error)
    assert PASSWORD not in told


@examples(100)
@given(password=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20))
def test_a_password_written_with_escapes_arrives_as_it_is(password: str) -> None:
    escaped = quote(password, safe="")
    url = f"user:{escaped}@127.0.0.1:1"
    for target in (
        redis(f"redis://{url}"),
        etcd(f"etcd://{url}"),
        zookeeper(f"zookeeper://{url}"),
        mysql(f"mysql://{url}/db"),
    ):
        assert target.password == password
        assert repr(target.password) == "***"
    assert repr(postgresql(f"postgresql://{url}/db").conninfo) == "***"


def log_in(url: str) -> BaseException:
    with pytest.raises(HoldfastError) as found, holdfast.connect(url) as locks:
        locks.lock("x").acquire(timeout=0)
    return found.value


def log_in_a(url: str) -> BaseException:
    async def main() -> BaseException:
        with pytest.raises(HoldfastError) as found:
            async with holdfast.aio.connect(url) as locks:
                await locks.lock("x").acquire(timeout=0)
        return found.value

    return asyncio.run(main())


class Hangup:
    """A server that listens to one piece of a request and hangs up."""

    def __enter__(self) -> str:
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                with self._listener.accept()[0] as connection:
                    connection.recv(65536)

    def __exit__(self, *_: object) -> None:
        self._listener.close()


@pytest.mark.server
@pytest.mark.parametrize("attempt", [log_in, log_in_a], ids=["threads", "asyncio"])
@pytest.mark.parametrize("kind", ["redis", "etcd", "postgresql", "mariadb"])
def test_a_login_that_is_refused_leaves_no_password_in_our_frames(
    kind: str, attempt: Callable[[str], BaseException]
) -> None:
    with servers.start(kind) as server:
        host, port = server.address
        scheme = {"mariadb": "mysql"}.get(kind, kind)
        error = attempt(f"{scheme}://nobody:{PASSWORD}@{host}:{port}/" + ("" if kind == "redis" else "db"))
    assert PASSWORD not in everything_told(error)


@pytest.mark.parametrize("world", ["threads", "asyncio"])
@pytest.mark.parametrize("written", ["consul://:{secret}@{place}", "consul://{place}?token={secret}"])
def test_a_token_that_goes_with_every_request_is_in_no_frame(written: str, world: str) -> None:
    with Hangup() as place:
        store = Hand(consul, written.format(secret=PASSWORD, place=place), world)
        with pytest.raises(HoldfastError) as found:
            store("claim", claim("x"), 0.1)
        store.close()
    told = everything_told(found.value)
    assert "Wire.ask" in told  # where the request is put together
    assert PASSWORD not in told


EVIL = "eve\n2026-01-01 CRITICAL root: all is lost\x1b]0;pwned\x07\x1b[2J"


def test_what_others_wrote_into_the_store_forges_no_line_of_a_message_or_a_log(tmp_path: Path) -> None:
    with (
        holdfast.connect(f"sqlite://{tmp_path}/locks.db") as locks,
        holdfast.connect(f"sqlite://{tmp_path}/locks.db") as other,
    ):
        lease = locks.lock("a", ttl=60).acquire()
        with sqlite3.connect(tmp_path / "locks.db") as raw:
            raw.execute("UPDATE holdfast_claims SET owner = ?, note = ?", (EVIL, EVIL))
        raw.close()
        with pytest.raises(holdfast.NotAcquired) as found:
            other.lock("a").acquire(timeout=0)
        assert str(found.value).isprintable()
        assert "eve" in str(found.value)
        lease.release()


def test_who_is_in_the_way_is_told_on_one_line() -> None:
    seen = Snapshot("a", 1, (Holding(EVIL, 7, 1, 0.1, 9.0),))
    assert in_the_way(seen, Claim("a", "h", "me", 30.0)).isprintable()


def test_what_a_server_said_forges_no_line_of_a_log() -> None:
    told: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())

    handler = Handler()
    logging.getLogger("holdfast").addHandler(handler)
    try:
        with holdfast.connect("memory://forged") as locks:
            locks._engine.hook.emit(events.LOST, "x", "me", detail=EVIL)
    finally:
        logging.getLogger("holdfast").removeHandler(handler)
    assert [text.isprintable() for text in told] == [True]


BYTES = EVIL.encode()
# What rogue servers say, and to whom they send us.
SAID = {
    "redis": ("redis://{}", b"-ERR " + BYTES.replace(b"\n", b"") + b"\r\n"),
    "sentinel": ("redis+sentinel://{}/main", b"*2\r\n$%d\r\n%s\r\n$1\r\n1\r\n" % (len(BYTES), BYTES)),
    "consul": ("consul://{}", b"HTTP/1.1 500 Oh\r\nContent-Length: %d\r\n\r\n%s" % (len(BYTES), BYTES)),
    "mysql": ("mysql://me@{}/db", b"%c\0\0\0\xff\x15\x04#28000%s" % (len(BYTES) + 9, BYTES)),
}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("kind", SAID)
def test_what_a_server_said_forges_no_line_of_an_error(kind: str, world: str) -> None:
    """The person on call reads it on a terminal, and whoever caught it has written it to a log."""
    url, said = SAID[kind]
    with rogue(lambda line: line.sendall(said), speaks_first=kind == "mysql") as address:
        error = WORLDS[world](url.format(address) + "?timeout=1")
    assert isinstance(error, HoldfastError)
    assert str(error).isprintable()


ECHOES = {
    "that does not know AUTH": f"ERR unknown command 'AUTH', with args beginning with: 'app' '{PASSWORD}' ",
    "of old": f"ERR unknown command `AUTH`, with args beginning with: `{PASSWORD}`, ",
    "that is none": f"ERR what is {PASSWORD}?",
}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(
    "url", ["redis://app:{p}@{}/", "redis+cluster://:{p}@{}/", "redis+sentinel://{}/main?sentinel_password={p}"]
)
@pytest.mark.parametrize("echo", ECHOES)
def test_a_redis_that_repeats_our_login_is_not_cited(echo: str, url: str, world: str) -> None:
    """`rename-command AUTH ""` is enough; and Sentinels of old know no AUTH."""
    with rogue(lambda line: line.sendall(f"-{ECHOES[echo]}\r\n".encode() * 3)) as address:
        asked = url.format(address, p=PASSWORD)
        error = WORLDS[world](f"{asked}{'&' if '?' in asked else '?'}timeout=1")
    assert isinstance(error, HoldfastError)
    cause: BaseException | None = error
    while cause is not None:
        assert PASSWORD not in str(cause)
        cause = cause.__cause__ or cause.__context__


@pytest.mark.server
@pytest.mark.parametrize("also", [None, "redis-py+redis"])
def test_nor_one_that_repeats_what_is_known_to_the_holder_alone(also: str | None) -> None:
    taken_away = [word for command in ("AUTH", "EVAL", "EVALSHA") for word in ("--rename-command", command, "")]
    with servers.start("redis", *taken_away) as server:
        host, port = server.address
        with (
            holdfast.connect(
                "memory://" if also else server.url, also=f"{also}://{host}:{port}/0?as=%7Bname%7D" if also else None
            ) as locks,
            pytest.raises(HoldfastError, match="unknown command") as refused,
        ):
            locks.lock("x").acquire(timeout=0)
    assert "beginning with" not in str(refused.value)


def every_error(kind: type[HoldfastError] = HoldfastError) -> Iterator[type[HoldfastError]]:
    yield kind
    for one in kind.__subclasses__():
        yield from every_error(one)


@pytest.mark.parametrize(
    "kind", dict.fromkeys(one for one in every_error() if one.__module__ == HoldfastError.__module__)
)
def test_no_error_is_of_two_lines(kind: type[HoldfastError]) -> None:
    assert str(kind(EVIL)) == "eve 2026-01-01 CRITICAL root: all is lost\\x1b]0;pwned\\x07\\x1b[2J"
    assert str(pickle.loads(pickle.dumps(kind(EVIL)))) == str(kind(EVIL))
