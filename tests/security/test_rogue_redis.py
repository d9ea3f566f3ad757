"""What answers in the place of Redis may say anything: it costs bounded time and memory, and is Unavailable."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import resource
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
import holdfast.aio
from holdfast import HoldfastError, Misuse, NotAcquired, Unavailable
from holdfast.drivers.aio import Asyncio
from holdfast.drivers.base import finish
from holdfast.stores.redis import open_shared, scanning
from holdfast.stores.redis.connection import Connection
from holdfast.stores.redis.keys import slot
from holdfast.stores.redis.pipe import open_pipe
from holdfast.stores.redis.replies import MOST_OF_LOOKING, Bounds, ProtocolError, Reader, sent_to
from holdfast.stores.redis.shared_wire import SharedWire
from holdfast.stores.redis.stream_pipe import by_streams
from holdfast.stores.redis.url import parse
from holdfast.stores.redis.wire import BlockingWire

from ..properties import examples, given, st
from .rogue import WORLDS, Answer, rogue


def endless(line: socket.socket) -> None:
    line.sendall(b"$2000000000\r\n")
    while True:
        line.sendall(b"x" * 65536)


def endless_lists(line: socket.socket) -> None:
    line.sendall(b"*2000000000\r\n")
    while True:
        line.sendall(b":1\r\n" * 65536)


LONG_LISTS = b"*999999\r\n" * 1000  # each makes room for all its elements, and Python goes through it
BOMBS: dict[str, Answer] = {
    "a text without an end": endless,
    "a list that no memory holds": lambda line: line.sendall(b"*2147483647\r\n"),
    "a list without an end": endless_lists,
    "lists in lists": lambda line: line.sendall(b"*1\r\n" * 100_000),
    "long lists in lists": lambda line: line.sendall(LONG_LISTS),
    "long lists in lists, after an answer": lambda line: line.sendall(b"+OK\r\n" + LONG_LISTS),
    "long lists behind a text without its end": lambda line: line.sendall(
        b"*2\r\n$0\r\nXX" * 2 + b"*200000000\r\n$0\r\nXX" * 6
    ),
    "another protocol": lambda line: line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "a number that is none": lambda line: line.sendall(b":abc\r\n"),
}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_unavailable_soon_and_costs_little(bomb: str, world: str) -> None:
    with rogue(BOMBS[bomb]) as address:
        before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
        worked = time.process_time()
        error = WORLDS[world](f"redis://{address}?timeout=1")
        assert time.monotonic() - started < 10
        assert time.process_time() - worked < 2  # in which nothing else in this process happens
        assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < 200  # MB
    assert isinstance(error, Unavailable)
    assert "127.0.0.1:" in str(error)


def test_a_walk_through_names_that_goes_round_in_circles_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    scanned = (b"*2\r\n$%d\r\n%d\r\n*0\r\n" % (len(b"%d" % number), number) for number in itertools.count(1))
    for answer, limit in (lambda _: next(scanned), 0.2), (lambda _: b"*2\r\n$1\r\n7\r\n*0\r\n", 60.0):
        monkeypatch.setattr(scanning, "LONGEST", limit)

        def converse(line: socket.socket, answer: Callable[[object], bytes] = answer) -> None:
            line.sendall(b"+PONG\r\n")
            while line.recv(65536):
                line.sendall(answer(None))

        with rogue(converse) as address, holdfast.connect(f"redis://{address}?timeout=1") as locks:
            started = time.monotonic()
            with pytest.raises(Unavailable, match=r"127\.0\.0\.1:"):
                locks.names()
            assert time.monotonic() - started < 10


def test_answers_are_short_but_those_to_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of many waiters, say. What others ask for on the same connection keeps its bound."""
    long = b"$2000000\r\n" + b"x" * 2_000_000 + b"\r\n"

    def converse(line: socket.socket) -> None:
        line.sendall(b"+PONG\r\n")
        while told := line.recv(65536):
            line.sendall(long * max(1, told.count(b"*")))

    async def ask(wire: BlockingWire | SharedWire) -> None:
        assert [len(reply) for reply in await wire.ask_all([b"*1\r\n$4\r\nLOOK\r\n"], 3.0)] == [2_000_000]
        with pytest.raises(Unavailable, match="more than 1048576 bytes"):
            await wire.ask(b"*1\r\n$3\r\nASK\r\n", 1.0)
        await wire.close()

    async def in_a_loop(url: str) -> None:
        await ask(open_shared(parse(url), Asyncio()))

    with rogue(converse) as address:
        url = f"redis://{address}?timeout=1"
        finish(ask(BlockingWire(parse(url))))
        asyncio.run(in_a_loop(url))


def test_a_reply_has_a_bound_and_the_next_one_has_it_anew() -> None:
    bounds = Bounds(Reader())
    bounds.check(b"x" * 90, 100)
    bounds.whole()
    bounds.check(b"x" * 90, 100)
    with pytest.raises(ProtocolError, match="more than 100 bytes"):
        bounds.check(b"x" * 20, 100)


@pytest.mark.parametrize("at", range(12))
def test_a_long_list_is_seen_in_whatever_pieces_it_is_told(at: int) -> None:
    told, bounds = b":1\r\n*10000000\r\n", Bounds(Reader())
    with pytest.raises(ProtocolError, match="more elements"):
        for piece in (told[:at], told[at:]):
            bounds.check(piece)


@pytest.mark.parametrize("at", range(1, 30))
def test_lists_are_counted_once_each_in_whatever_pieces_they_are_told(at: int) -> None:
    """All of one reply together: as many elements as its bytes could hold, and no more."""
    told = b"*200\r\n*108\r\n*150\r\n:1\r\n$3\r\nabc\r\n"
    for most, fits in ((1374, True), (1373, False)):
        bounds, seen = Bounds(Reader()), True
        try:
            for start in range(0, len(told), at):
                bounds.check(told[start : start + at], most)
        except ProtocolError:
            seen = False
        assert seen is fits
    bounds.whole()
    bounds.check(told, 1374)


HIDDEN = (
    b"*2\r\n$0\r\nXX*100000000\r\n"  # hiredis does not look at the end of a text: this one has none, and a list follows
)


@pytest.mark.parametrize("at", range(len(HIDDEN)))
@pytest.mark.parametrize("first", [b"", b":1\r\n", b"*2\r\n:1\r\n"])
def test_a_long_list_behind_a_text_that_does_not_end_is_seen(first: bytes, at: int) -> None:
    """Whenever Python collected, the process stood still: 5 s for 90 bytes."""
    reader = Reader()
    bounds = Bounds(reader)
    with pytest.raises(ProtocolError, match="does not end where it should"):
        for piece in (first, HIDDEN[:at], HIDDEN[at:]):
            reader.feed(bounds.check(piece))
            while reader.gets() is not False:
                bounds.whole()


@pytest.mark.parametrize("cut", [1, 2, 3, 7, 64, 8192])
def test_a_text_that_looks_like_lists_is_none(cut: int) -> None:
    """An owner may be called so, and a note say so: else who names them keeps others from looking."""
    texts = [b"x*99999999", b"*99999999\r\n", b"\r\n*99999999\r\n$7\r\n", b"%123>456\n*78999", b"x" * 70_000]
    said = b"*%d\r\n" % len(texts) + b"".join(b"$%d\r\n%b\r\n" % (len(text), text) for text in texts)
    said += b"*1\r\n*120\r\n" + b"*-1\r\n$-1\r\n*0\r\n:-1\r\n+\r\n-E\r\n" * 20
    reader, replies = Reader(), list[object]()
    bounds = Bounds(reader)
    for at in range(0, 3 * len(said), cut):
        reader.feed(bounds.check((said * 3)[at : at + cut]))
        while (reply := reader.gets()) is not False:
            bounds.whole()
            replies.append(reply)
    assert replies[::2] == [texts] * 3
    assert len(replies) == 6
    assert bounds.between


@pytest.mark.parametrize(
    "said",
    [b"%100\r\n", b"~100\r\n", b">100\r\n", b"|100\r\n", b"*100\r\n_\r\n", b"*100\r\n" + b"x" * 70_000, b"*0100\r\n"],
)
def test_what_no_redis_says_is_not_read_on(said: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"nobody asked for|does not end"):
        Bounds(Reader()).check(said)


@examples(200)
@given(
    texts=st.lists(
        st.one_of(st.binary(max_size=30), st.sampled_from([b"*200", b"\n*200\r\n", b"$3\r\n*999"])), max_size=150
    ),
    cuts=st.lists(st.integers(1, 40), max_size=60),
)
def test_replies_are_read_here_as_hiredis_reads_them(texts: list[bytes], cuts: list[int]) -> None:
    """In whatever pieces: between two of them, and only there, nothing is missing."""
    said = b":7\r\n*%d\r\n" % len(texts) + b"".join(b"$%d\r\n%b\r\n" % (len(text), text) for text in texts) + b"+OK\r\n"
    reader, replies = Reader(), list[object]()
    bounds = Bounds(reader)
    while said:
        size = cuts.pop() if cuts else len(said)
        reader.feed(bounds.check(said[:size]))
        said = said[size:]
        while (reply := reader.gets()) is not False:
            bounds.whole()
            replies.append(reply)
    assert replies == [7, texts, b"OK"]
    assert bounds.between


CUT = (b"*2\r\n:0\r\n", b":4991375\r\n", b":5\r\n")


def test_a_number_in_a_list_is_no_answer_however_the_list_is_cut_in_asyncio() -> None:
    """Of a claim that is refused, the second is a time: taken for the answer, it was a token."""

    async def main(host: str, port: int) -> None:
        pipe = await open_pipe((host, port), None, 5.0, None, Asyncio().now() + 5)
        asked = [asyncio.ensure_future(pipe.ask(b"PING\r\n")) for _ in range(2)]
        await asyncio.sleep(0)
        for piece in CUT:
            pipe.get_buffer(-1)[: len(piece)] = piece
            pipe.buffer_updated(len(piece))
        assert await asyncio.wait_for(asyncio.gather(*asked), 5) == [[0, 4991375], 5]
        pipe.fail(Unavailable("done"))

    def silent(line: socket.socket) -> None:
        line.recv(1)

    with rogue(silent, speaks_first=True) as address:
        host, _, port = address.partition(":")
        asyncio.run(main(host, int(port)))


def test_nor_in_threads() -> None:
    def cut(line: socket.socket) -> None:
        line.sendall(b"+PONG\r\n" * line.recv(65536).count(b"PING"))
        for piece in CUT:
            line.recv(1)  # not before the one before is read
            line.sendall(piece)
        line.recv(1)

    heard: list[object] = []
    deadline = time.monotonic() + 5
    with rogue(cut, speaks_first=True) as address:
        host, _, port = address.partition(":")
        connection = Connection(parse(f"redis://{address}"), (host, int(port)))
        while not connection.greeted:
            assert connection.wait(deadline)
            assert connection.hear() is False
        connection.quick = True
        for _ in CUT:
            connection.send(b"x")
            assert connection.wait(deadline)
            heard.append(connection.hear())
        connection.close()
    assert heard == [False, [0, 4991375], 5]


REPLIES = st.recursive(
    st.one_of(
        st.integers(-(2**63), 2**63 - 1).map(lambda number: b":%d\r\n" % number),
        st.binary(max_size=40).map(lambda text: b"$%d\r\n%b\r\n" % (len(text), text)),
        st.sampled_from(
            [b"+OK\r\n", b"$-1\r\n", b"*-1\r\n", b"-ERR no\r\n", b"-NOSCRIPT no\r\n", b":1\r\n", b"*0\r\n"]
        ),
        st.binary(min_size=1, max_size=30),
    ),
    lambda inner: st.lists(inner, max_size=4).map(lambda parts: b"*%d\r\n" % len(parts) + b"".join(parts)),
    max_leaves=6,
)


# A map of RESP 3, which nobody asked for, of which a list, or a map, is the key.
MAPS = [b"%1\r\n*0\r\n:1\r\n", b"%1\r\n%0\r\n:1\r\n"]


def a_map(said: bytes, first: bytes, world: str) -> None:
    with rogue(lambda line: line.sendall(first + said)) as address:
        error = WORLDS[world](f"redis://{address}?timeout=0.5")
    assert isinstance(error, Unavailable)
    assert address in str(error)


def maps_in_asyncio_are_told_quietly() -> None:
    """asyncio says what a protocol raises to the log, with all that it knows, and nobody here has asked for that."""
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("asyncio").addHandler(handler)
    try:
        a_map(MAPS[0], b"", "asyncio")
    finally:
        logging.getLogger("asyncio").removeHandler(handler)
    assert heard == []


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("first", [b"", b"+PONG\r\n"])
@pytest.mark.parametrize("said", MAPS)
def test_a_map_that_python_cannot_make_is_no_answer(said: bytes, first: bytes, world: str) -> None:
    a_map(said, first, world)


def test_nor_is_it_a_fatal_error_of_the_loops() -> None:
    maps_in_asyncio_are_told_quietly()


def test_nor_is_it_over_any_other_stream() -> None:
    """As the simulator has them, and drivers of one's own."""

    async def ask() -> None:
        driver = Asyncio()
        pipe = await by_streams(driver)((host, int(port)), None, 0.5, None, driver.now() + 5)
        with pytest.raises(Unavailable, match="unhashable"):
            await pipe.ask(b"PING\r\n")

    with rogue(lambda line: line.sendall(MAPS[0])) as address:
        host, _, port = address.partition(":")
        asyncio.run(ask())


def test_a_cursor_is_a_number_since_all_of_them_are_remembered() -> None:
    """In ten seconds they were three gigabytes."""
    cursors = itertools.count(1)

    def scanned(line: socket.socket) -> None:
        while said := line.recv(65536):
            cursor = b"%d" % next(cursors) + b"7" * 1000
            answer = b"*2\r\n$%d\r\n%b\r\n*0\r\n" % (len(cursor), cursor)
            line.sendall(b"+PONG\r\n" * (b"PING" in said) + answer * (b"MATCH" in said))

    with rogue(scanned, speaks_first=True) as address:
        locks = holdfast.connect(f"redis://{address}")
        with locks, pytest.raises(Unavailable, match="does not speak as Redis"):
            list(locks.names())
    assert next(cursors) < 10


@pytest.mark.parametrize("cursor", [b"7" * 21, b"seven", b"", b"-7"])
def test_what_is_no_cursor(cursor: bytes) -> None:
    with pytest.raises(Unavailable):
        scanning.Scan(b"*", "a").take([cursor, []])


def test_the_nodes_of_a_cluster_have_one_bound_together() -> None:
    first = scanning.Scan(b"*", "a")
    half = [b"x" * (MOST_OF_LOOKING // 2 + 1)]
    first.take([b"0", half])
    with pytest.raises(Unavailable, match="MB of names"):
        scanning.Scan(b"*", "b", first).take([b"0", half])


def test_slots_that_are_told_a_thousand_times_are_not_gone_through() -> None:
    """An answer of 60 kB was five seconds of work, one of 1 MB a minute, in which an event loop stood still."""
    everything = b"*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\nlocalhost\r\n:1\r\n"
    slots = b"*1000\r\n" + everything * 1000

    def cluster(line: socket.socket) -> None:
        while said := line.recv(65536):
            line.sendall(b"+PONG\r\n" * (b"PING" in said) + slots * (b"SLOTS" in said))

    with rogue(cluster, speaks_first=True) as address:
        locks = holdfast.connect(f"redis+cluster://{address}")
        with locks, pytest.raises(Unavailable, match="does not speak as Redis"):
            list(locks.names())


def _claim(locks: holdfast.Locks) -> None:
    with contextlib.suppress(NotAcquired):
        locks.lock("x").acquire(timeout=0)


ASKED: dict[str, Callable[[holdfast.Locks], object]] = {
    "claim": _claim,
    "inspect": lambda locks: locks.inspect("x"),
    "evict": lambda locks: locks.force_release("x", token=5),
}


@pytest.mark.filterwarnings("ignore")
@examples(25)
@given(reply=REPLIES, asked=st.sampled_from(sorted(ASKED)))
def test_whatever_is_answered_nothing_but_our_own_errors_is_raised(reply: bytes, asked: str) -> None:
    """A first answer, to the greeting, that is in order; then this one, to everything."""

    def answer(line: socket.socket) -> None:
        line.sendall(reply)

    greeted: set[int] = set()

    def polite(line: socket.socket) -> None:
        if line.fileno() in greeted:
            answer(line)
        else:
            greeted.add(line.fileno())
            line.sendall(b"+PONG\r\n" + reply)

    with rogue(polite) as address:
        locks = holdfast.connect(f"redis://{address}?timeout=0.05")
        with contextlib.suppress(Unavailable, Misuse):
            ASKED[asked](locks)
        with contextlib.suppress(HoldfastError):
            locks.close(timeout=0)


def _sends(place: str, how: str) -> Answer:
    """A node, or a Sentinel, that sends everybody there."""
    host, _, port = (word.encode() for word in place.rpartition(":"))

    def replied(command: bytes) -> bytes:
        if b"EVALSHA" in command:
            return b"-%b %d %b:%b\r\n" % (how.encode(), slot(b"*" + command), host, port)
        if b"SLOTS" in command:
            return b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$%d\r\n%b\r\n:%b\r\n" % (len(host), host, port)
        if b"SENTINEL" in command:
            return b"*2\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(host), host, len(port), port)
        return b"+OK\r\n"

    def answer(line: socket.socket) -> None:
        while said := line.recv(65536):
            line.sendall(b"".join(map(replied, said.split(b"*")[1:])))

    return answer


def names(url: str) -> BaseException:
    with holdfast.connect(url) as locks, pytest.raises(HoldfastError) as refused:
        locks.names()
    return refused.value


@pytest.mark.parametrize(
    ("how", "scheme", "rest", "ask"),
    [
        *((how, "redis+cluster", "", world) for how in ("MOVED", "ASK") for world in WORLDS.values()),
        ("SLOTS", "redis+cluster", "", names),
        *(("SENTINEL", "redis+sentinel", "/main", world) for world in WORLDS.values()),
    ],
)
def test_nobody_is_sent_to_a_socket_of_this_machine(
    tmp_path: Path, how: str, scheme: str, rest: str, ask: Callable[[str], BaseException]
) -> None:
    """With our password, and whatever listens there: a server on the network may name hosts, and nothing else."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as here:
        here.bind(str(path))
        here.listen()
        here.setblocking(False)
        with rogue(_sends(f"{path}:0", how), speaks_first=True) as address:
            error = ask(f"{scheme}://me:hunter2@{address}{rest}?timeout=1")
        assert isinstance(error, Unavailable)
        assert "does not speak as Redis does" in str(error)
        with pytest.raises(BlockingIOError):
            here.accept()


@pytest.mark.parametrize(
    ("host", "port"), [("/run/redis.sock", 0), ("/x", 6379), ("h", 0), ("h", 65536), ("a b", 1), ("a\n", 1)]
)
def test_where_a_server_sends_us_is_a_host_and_a_port(host: str, port: int) -> None:
    with pytest.raises(ValueError, match="no address"):
        sent_to(host, port)
    assert sent_to("fe80::1%eth0", b"6379") == ("fe80::1%eth0", 6379)
    assert sent_to("", "6379", "seed") == ("seed", 6379)
