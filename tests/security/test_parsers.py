"""What reads answers, by itself: of garbage, of half an answer and of bombs comes nothing but the error that is translated."""

from __future__ import annotations

import contextlib
import json
import time
import zlib
from itertools import pairwise
from typing import Any

import hpack
import pytest
from hyperframe import frame as frames

from holdfast.claim import MAX_TOKEN, Claim, new_holder
from holdfast.errors import HoldfastError, Misuse, Unavailable
from holdfast.stores.consul import replies as consul
from holdfast.stores.consul.book import Book
from holdfast.stores.etcd import keys as etcd_keys
from holdfast.stores.etcd import replies as etcd
from holdfast.stores.etcd.channel import MOST, Channel, ChannelError
from holdfast.stores.redis import replies as redis
from holdfast.stores.redlock import fan as redlock
from holdfast.stores.redlock import quorum
from holdfast.stores.zookeeper import line as zookeeper
from holdfast.stores.zookeeper.records import told as zookeeper_told

from ..properties import example, examples, given, st

WHERE = "liar:1"
odd_numbers = st.sampled_from([0, 1, -1, 5, 2**31, MAX_TOKEN, MAX_TOKEN + 1, 2**63, -(2**63), 10**30])
odd_texts = st.one_of(
    st.text(max_size=12), st.sampled_from(["²", "٣", "9" * 5000, "1_0", " 1", "\ud800", "\x1b[2J", "None"])
)
plain = st.one_of(st.none(), st.booleans(), odd_numbers, st.floats(), odd_texts)
trees = st.recursive(
    plain,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(
                ["Results", "Errors", "KV", "Key", "Value", "ModifyIndex", "Session", "OpIndex", "What", "ID"]
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=8,
)


def pieces(whole: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({0, len(whole), *(cut % (len(whole) + 1) for cut in cuts)})
    return [whole[start:end] for start, end in pairwise(at)]


# ---- Consul: HTTP and JSON

heads = st.lists(
    st.sampled_from(
        [
            *(b"Content-Length: 5", b"Content-Length: 0", b"Content-Length: -1", b"Content-Length: 99999999999"),
            *(b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip", b"Connection: close", b"X: y", b":", b"\xff"),
            *(b"X-Consul-Index: 7", b"X-Consul-Index: x", b"X-Consul-Index: " + b"9" * 5000),
        ]
    ),
    max_size=3,
)
bodies = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [b"hello", b"5\r\nhello\r\n0\r\n\r\n", b"-6\r\n", b"ffffffff\r\n", b"5\r\nhellooo\r\n", b"0\r\n\r\nmore"]
    ),
)


@examples(50)
@given(
    status=st.sampled_from([b"200 OK", b"204", b"304 x", b"409 C", b"999 x", b"100 Continue", b"", b"2000"]),
    head=heads,
    body=bodies,
    cuts=st.lists(st.integers(0, 400), max_size=4),
)
def test_http_is_an_answer_or_none_however_it_is_cut(
    status: bytes, head: list[bytes], body: bytes, cuts: list[int]
) -> None:
    whole = b"\r\n".join([b"HTTP/1.1 " + status, *head, b"", b""]) + body

    def read(parts: list[bytes]) -> Any:
        reader, found = consul.Reader(), None
        try:
            for part in parts:
                found = reader.feed(part)
                if found is not None:
                    return found.status, found.body
            end = reader.end()
            return end.status, end.body
        except (ValueError, EOFError) as error:
            return type(error)

    assert read([whole]) == read(pieces(whole, cuts))


@examples(40)
@given(said=trees)
@example(said={"Results": [{"KV": {"Key": "x", "Value": "", "ModifyIndex": float("inf")}}]})
@example(said={"ID": "../../x HTTP/1.1\r\nX: y"})
@example(said={"Errors": [{"OpIndex": float("inf"), "What": ""}]})
def test_json_of_another_kind_is_unavailable(said: Any) -> None:
    answer = consul.Answer(200, 0, json.dumps(said).encode())
    for read in (consul.items, consul.index, consul.first_error, consul.session_id):
        with contextlib.suppress(Unavailable):
            consul.told(answer, WHERE, read)


CLAIM = Claim("x", new_holder(), "me", 20.0)
ENTRY = '["{who}","{session}",{fair},1,20,5,"me"]'


def _entry(
    who: str = "0123456789abcdef0123", session: str = "12345678-1234-1234-1234-123456789abc", fair: object = 1
) -> str:
    return ENTRY.format(who=who, session=session, fair=fair)


entries = st.one_of(
    st.just(_entry()),
    st.builds(_entry, who=st.text("0123456789abcdefx", min_size=19, max_size=21)),
    st.builds(_entry, session=st.sampled_from(["", "x" * 36, "../" * 12, "é" * 36, '"' * 36])),
    st.builds(_entry, fair=st.sampled_from([0, 2, -1, "null", "[]"])),
    st.sampled_from(["", "[]", "{}", "x", "null", '["0123456789abcdef0123"]', "[" * 10_000]),
    st.tuples(st.just(_entry()), st.integers(0, 80)).map(lambda cut: cut[0][: cut[1]]),
)


@examples(50)
@given(
    capacity=st.sampled_from(["1", "3", "0", "9" * 5000, "-1", ""]),
    inside=st.lists(entries, max_size=2),
    line=st.lists(entries, max_size=3),
    noise=st.one_of(st.none(), st.binary(max_size=60)),
)
@example(capacity="1", inside=[], line=[_entry().replace(",1,20,", ",5,20,"), '["x"]'], noise=None)
def test_a_book_that_others_wrote_is_ours_or_none_of_ours(
    capacity: str, inside: list[str], line: list[str], noise: bytes | None
) -> None:
    joint = ",\n"
    value = f"[{capacity},[\n{joint.join(inside)}\n],[\n{joint.join(line)}\n]]".encode()
    try:
        book = Book.read(value if noise is None else noise, 7, "")
    except (ValueError, TypeError, zlib.error, Misuse):
        return  # looking.open_book says that it is not ours
    try:
        book.heir()
        book.obstacles("0123456789abcdef0123")
        book.sessions()
        list(book.waiting())
        book.blocks(CLAIM, "f" * 20)
        book.enter(CLAIM, "f" * 20, "12345678-1234-1234-1234-123456789abc", "", 0, 0.0)
        book.packed()
    except Misuse:
        return


# ---- etcd: HTTP/2, gRPC, protobuf

messages = st.recursive(
    st.one_of(
        st.binary(max_size=20),
        st.tuples(st.integers(1, 12), st.integers(0, 2**64 - 1)).map(lambda it: _field(it[0], it[1])),
        st.sampled_from([b"\xff" * 12, b"\x0a\xff\xff\xff\xff\x0f", b"\x12", b"\x09\x01"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(b"".join),
        st.tuples(st.integers(1, 12), inner).map(lambda it: _field(it[0], it[1])),
    ),
    max_leaves=10,
)


def _field(number: int, value: int | bytes) -> bytes:
    from holdfast.stores.etcd.requests import data
    from holdfast.stores.etcd.requests import number as numbered

    return data(number, value) if isinstance(value, bytes) else numbered(number, value)


@examples(30)
@given(message=messages)
def test_protobuf_is_read_or_garbled(message: bytes) -> None:
    readers = (etcd.read_txn, etcd.read_range, etcd.read_lease, etcd.read_watch, etcd.read_login)
    for read in readers:
        try:
            found = read(message)
        except etcd.Garbled:
            continue
        if isinstance(found, etcd.Done):
            try:
                pairs = [pair for index in range(len(found.answers)) for pair in found.ranged(index)]
            except etcd.Garbled:
                continue
            for pair in pairs:
                terms = etcd_keys.read_terms(pair)
                assert type(etcd_keys.token_of(pair, terms)) is int


@examples(30)
@given(
    value=st.one_of(trees.map(lambda tree: json.dumps(tree).encode()), st.binary(max_size=40), st.just(b"[" * 50_000))
)
def test_what_others_wrote_under_our_keys_is_read_as_little_as_it_says(value: bytes) -> None:
    terms = etcd_keys.read_terms(etcd.KeyValue(b"k", 1, 1, value, 0))
    assert (type(terms.owner), type(terms.units), type(terms.token)) == (str, int, int)
    said = zookeeper_told(value)
    assert type(said.owner) is str


headers = st.lists(
    st.tuples(
        st.sampled_from([b":status", b"grpc-status", b"grpc-message", b"content-length", b"x", b":path", b"", b"Te"]),
        st.one_of(
            st.sampled_from([b"200", b"404", b"0", b"99999999999", b"\xff\xfe", b"%zz%ff", b""]), st.binary(max_size=10)
        ),
    ),
    max_size=4,
)


def _frame(kind: str, headers_: list[tuple[bytes, bytes]], data: bytes, end: bool, stream: int) -> bytes:
    made: Any
    if kind == "headers":
        made = frames.HeadersFrame(stream, hpack.Encoder().encode(headers_))
        made.flags.add("END_HEADERS")
    elif kind == "data":
        made = frames.DataFrame(stream, data)
    elif kind == "settings":
        made = frames.SettingsFrame(0, settings={data[0] if data else 4: int.from_bytes(data[1:5], "big")})
    elif kind == "window":
        made = frames.WindowUpdateFrame(stream, window_increment=1 + int.from_bytes(data[:3], "big"))
    elif kind == "reset":
        made = frames.RstStreamFrame(stream, error_code=int.from_bytes(data[:4], "big"))
    elif kind == "goodbye":
        made = frames.GoAwayFrame(0, additional_data=data)
    elif kind == "push":
        made = frames.PushPromiseFrame(stream, promised_stream_id=2, data=hpack.Encoder().encode(headers_))
        made.flags.add("END_HEADERS")
    elif kind == "ping":
        made = frames.PingFrame(0, opaque_data=(data + b"\0" * 8)[:8])
    else:
        return data
    if end and kind in ("headers", "data"):
        made.flags.add("END_STREAM")
    return bytes(made.serialize())


said_frames = st.lists(
    st.builds(
        _frame,
        kind=st.sampled_from(["headers", "data", "settings", "window", "reset", "goodbye", "push", "ping", "noise"]),
        headers_=headers,
        data=st.one_of(st.binary(max_size=30), st.sampled_from([b"\0\xff\xff\xff\xff", b"\0\0\0\0\1x", b"\1\0\0\0\0"])),
        end=st.booleans(),
        stream=st.sampled_from([1, 1, 1, 2, 3]),
    ),
    max_size=6,
)


@examples(50)
@given(said=said_frames)
@example(said=[_frame("headers", [(b":status", b"\xff\xfe")], b"", True, 1)])
def test_http2_is_understood_or_the_connection_is_over(said: list[bytes]) -> None:
    channel = Channel("liar:1", tls=False)
    number = channel.call(b"/etcdserverpb.Lease/LeaseGrant", b"x", ())
    channel.outgoing()
    try:
        for one in [frames.SettingsFrame(0).serialize(), *said]:
            for told in channel.feed(one or b"\0"):
                assert len(told.message) <= MOST
                assert told.stream in (0, number)
            channel.outgoing()
    except ChannelError:
        return


@pytest.mark.parametrize("block", [b"\xff" * 60000, b"\x00\x7f" + b"\xff" * 60000, b"\x3f" + b"\xff" * 60000])
def test_a_number_without_end_in_headers_is_the_end_of_the_connection_at_once(block: bytes) -> None:
    """Of each of its bytes a longer number was made, and at last a ValueError of Python's, about saying it."""
    channel = Channel("liar:1", tls=False)
    channel.call(b"/etcdserverpb.Lease/LeaseGrant", b"x", ())
    parts: list[Any] = [frames.HeadersFrame(1, block[:16000])]
    parts += [frames.ContinuationFrame(1, block[at : at + 16000]) for at in range(16000, len(block), 16000)]
    parts[-1].flags.add("END_HEADERS")
    began = time.process_time()
    with pytest.raises(ChannelError, match="headers that cannot be read"):
        channel.feed(b"".join(one.serialize() for one in (frames.SettingsFrame(0), *parts)))
    assert time.process_time() - began < 0.2


def test_whatever_the_reader_of_headers_raises_is_the_end_of_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise ValueError("Exceeds the limit (4300 digits) for integer string conversion")

    monkeypatch.setattr(hpack.Decoder, "decode", fails)
    channel = Channel("liar:1", tls=False)
    channel.call(b"/etcdserverpb.Lease/LeaseGrant", b"x", ())
    headers_ = frames.HeadersFrame(1, b"\x88", flags=["END_HEADERS"])
    with pytest.raises(ChannelError, match="headers that cannot be read"):
        channel.feed(frames.SettingsFrame(0).serialize() + headers_.serialize())


# ---- ZooKeeper: what the names of nodes say

children = st.lists(
    st.one_of(
        st.builds(
            "{}.{}.{}.{}.{}".format,
            st.sampled_from(["a" * 32, "b" * 32, ""]),
            st.one_of(odd_numbers, odd_texts),
            st.one_of(odd_numbers, odd_texts),
            st.sampled_from(["f", "u", ""]),
            st.one_of(st.integers(-(2**31), 2**31 - 1), odd_texts),
        ),
        st.builds("{}~{}".format, st.sampled_from(["a" * 32, ""]), st.one_of(odd_numbers, odd_texts)),
        st.sampled_from(["a" * 32 + "!", "!", "~", ".....", ""]),
        odd_texts,
    ),
    max_size=12,
)


@examples(30)
@given(children=children)
@example(children=["a" * 32 + "~²"])
def test_nodes_that_others_made_are_passed_over(children: list[str]) -> None:
    nodes = zookeeper.read(children)
    assert all(0 < node.units <= node.capacity for node in nodes)
    zookeeper.standing(nodes, "a" * 32)
    zookeeper.entitled(nodes)
    zookeeper.read(zookeeper.deciding(children, "a" * 32, 1))
    for child in children:
        zookeeper.decode(child)


# ---- Redis and Redlock: what stands in a reply

replies = st.recursive(
    st.one_of(
        st.none(),
        st.integers(-(2**63), 2**63 - 1),
        st.binary(max_size=12),
        st.sampled_from(
            [b"message", b"subscribe", b"own", b"1 2", b"9" * 5000, redis.ReplyError("NOAUTH"), 0, 1, 2, 3]
        ),
    ),
    lambda inner: st.lists(inner, max_size=8),
    max_leaves=10,
)


@examples(50)
@given(reply=replies)
def test_a_reply_of_another_form_is_one_of_our_errors(reply: Any) -> None:
    with contextlib.suppress(HoldfastError):
        rung = redis.heard(reply, b"own", WHERE)
        assert rung is None or type(rung) is bytes
    fits = (
        *(redlock.of_claim(5), redlock.of_release, redlock.of_eviction, redlock.of_renewal(3)),
        *(redlock.of_loading, redlock.of_scan, redlock.of_inspection),
    )
    for fit in fits:
        found = redlock.Question(b"", fit, lambda answers: True, "k").understood(reply, WHERE)
        assert found is reply or (isinstance(found, HoldfastError) and WHERE in str(found))
    claimed = redlock.Question(b"", redlock.of_claim(5), lambda answers: True).understood(reply, WHERE)
    quorum.tally([None if isinstance(claimed, Exception) else claimed, None, 5])


def test_an_answer_as_long_as_no_lock_has_is_refused_as_soon_as_it_is_announced() -> None:
    with pytest.raises(ValueError, match="more than"):
        consul.Reader().feed(b"HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n")
    with pytest.raises(ValueError, match="more than"):
        consul.Reader().feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n200000\r\n")
    with pytest.raises(redis.ProtocolError, match="more elements"):
        redis.Bounds(redis.Reader()).check(b"*10000000\r\n")
    channel = Channel(WHERE, tls=False)
    channel.call(b"/etcdserverpb.Watch/Watch", b"", ())
    channel.feed(frames.SettingsFrame(0).serialize() + _frame("headers", [(b":status", b"200")], b"", False, 1))
    with pytest.raises(ChannelError, match="would be believed"):
        channel.feed(_frame("data", [], b"\0\xff\xff\xff\xff", False, 1))
