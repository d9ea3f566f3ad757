"""Our HTTP/2 against h2's and hpack's: what we say they understand, what they say we do, however it is cut up."""

from __future__ import annotations

import hpack
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded, StreamReset
from h2.settings import SettingCodes, Settings
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.stores.etcd.channel import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    HEADERS,
    OK,
    PING,
    PREFACE,
    PUSH_PROMISE,
    RESET,
    SETTINGS,
    WINDOW_UPDATE,
    Channel,
    ChannelError,
    Status,
    Told,
    frame,
    setting,
)
from holdfast.stores.etcd.headers import TABLE, HeaderReader, HeaderWriter, NotHttp2, unremembered

PATHS = (b"/etcdserverpb.KV/Txn", b"/etcdserverpb.Watch/Watch", b"/" + b"long" * 300, b"/")
COMMON = ((b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"x:1"), (b"te", b"trailers"))


# ---- header blocks


def test_what_blocks_mean_is_remembered_of_a_few() -> None:
    """Who says ever new ones does not fill our memory."""
    reader = HeaderReader()
    for first in range(0x82, 0xBE):
        for second in range(0x82, 0xBE):
            reader.read(bytes((first, second)))
    assert len(reader.known) <= 64


@settings(max_examples=60, deadline=None)
@given(
    calls=st.lists(
        st.tuples(st.sampled_from(PATHS), st.one_of(st.none(), st.binary(max_size=300)), st.booleans()), max_size=12
    ),
    small=st.sampled_from([0, 100, TABLE, 65536]),
)
def test_headers_that_we_write_are_read_by_hpack(calls: list[tuple[bytes, bytes | None, bool]], small: int) -> None:
    writer, decoder = HeaderWriter(*COMMON), hpack.Decoder()
    for path, token, shrinks in calls:
        if shrinks:
            writer.shrink(small)
            decoder.max_allowed_table_size = min(small, TABLE)
        own = () if token is None else ((b"token", token),)
        block = (writer.known.get(path) or writer.write(path)) + unremembered(own)
        assert list(decoder.decode(block, raw=True)) == [(b":path", path), *COMMON, *own]


def test_what_was_said_before_is_said_by_its_number() -> None:
    writer = HeaderWriter(*COMMON)
    first, again = (writer.write(PATHS[0]) for _ in range(2))
    assert writer.known == {PATHS[0]: again}
    other = writer.write(PATHS[1])
    assert len(first) > 40
    assert len(again) == 5 < len(other)
    assert not writer.known  # its number has changed
    assert writer.write(PATHS[0]) != again


def test_a_secret_is_never_said_by_a_number() -> None:
    said = [unremembered([(b"token", b"secret")]) for _ in range(3)]
    decoder = hpack.Decoder()
    for block in said:
        assert b"secret" in block
        (header,) = decoder.decode(block, raw=True)
        assert not header.indexable


@settings(max_examples=60, deadline=None)
@given(
    said=st.lists(
        st.lists(
            st.tuples(
                st.sampled_from([b"grpc-status", b"content-type", b"x"]), st.sampled_from([b"0", b"5", b"a" * 50])
            ),
            max_size=4,
        ),
        max_size=12,
    )
)
def test_headers_that_hpack_writes_are_read_also_when_they_are_known(said: list[list[tuple[bytes, bytes]]]) -> None:
    encoder, reader = hpack.Encoder(), HeaderReader()
    for headers in said:
        block = encoder.encode(headers)
        known = reader.known.get(block)
        assert (reader.read(block) if known is None else known) == dict(headers)


# ---- conversations


class Server:
    """h2 at the other end, which takes what it is given in pieces and answers as it is told."""

    def __init__(self, channel: Channel, window: int = 65535) -> None:
        self.h2 = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self.h2.local_settings = Settings(client=False, initial_values={SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.h2.initiate_connection()
        self.channel = channel
        self.said: dict[int, bytes] = {}
        self.ended: set[int] = set()
        self.reset: set[int] = set()
        self.told: list[Told] = []

    def talk(self, piece: int = 1 << 20) -> None:
        """Until neither has anything left to say."""
        while any(both := (self.channel.outgoing(), self.h2.data_to_send())):
            ours, theirs = both
            for at in range(0, len(ours), piece):
                for event in self.h2.receive_data(ours[at : at + piece]):
                    if isinstance(event, RequestReceived):
                        self.said[event.stream_id] = b""
                    elif isinstance(event, DataReceived):
                        self.said[event.stream_id] += event.data
                        self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    elif isinstance(event, StreamEnded):
                        self.ended.add(event.stream_id)
                    elif isinstance(event, StreamReset):
                        self.reset.add(event.stream_id)
            for at in range(0, len(theirs), piece):
                self.told += self.channel.feed(theirs[at : at + piece])

    def answer(self, number: int, message: bytes, padding: int | None, code: int = 0) -> None:
        self.h2.send_headers(number, [(b":status", b"200"), (b"content-type", b"application/grpc")])
        whole = b"\0" + len(message).to_bytes(4, "big") + message
        while whole:
            room = min(self.h2.local_flow_control_window(number), 16000)
            self.h2.send_data(number, whole[:room], pad_length=padding)
            whole = whole[room:]
        trailers = [(b"grpc-status", b"%d" % code), (b"grpc-message", b"as%20said")]
        self.h2.send_headers(number, trailers, end_stream=True)


def wrapped(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4, "big") + message


@settings(max_examples=40, deadline=None)
@given(
    messages=st.lists(st.tuples(st.sampled_from(PATHS), st.integers(0, 100_000)), min_size=1, max_size=5),
    window=st.sampled_from([1, 1000, 65535, 1 << 20]),
    piece=st.sampled_from([1, 7, 1000, 1 << 20]),
    padding=st.sampled_from([None, 0, 5, 255]),
)
def test_calls_and_answers_are_understood(
    messages: list[tuple[bytes, int]], window: int, piece: int, padding: int | None
) -> None:
    channel = Channel("x:1", tls=False)
    server = Server(channel, window)
    server.talk(piece)
    sizes = {}
    for path, size in messages:
        if window == 1 or piece == 1:
            size %= 100
        sizes[channel.call(path, b"q" * size, ((b"token", b"t" * (size % 50)),))] = size
    server.talk(piece)
    assert server.said == {number: wrapped(b"q" * size) for number, size in sizes.items()}
    assert server.ended == set(sizes)
    for number, size in sizes.items():
        server.answer(number, b"a" * size, padding, code=number % 3)
    server.talk(piece)
    for number, size in sizes.items():
        assert [told for told in server.told if told.stream == number] == [
            Told(number, b"a" * size),
            Told(number, status=Status(number % 3, "as said")),
        ]


def test_more_than_a_window_is_read_and_said_to_be() -> None:
    channel = Channel("x:1", tls=False)
    server = Server(channel)
    server.talk()
    number = channel.call(b"/etcdserverpb.KV/Range", b"", (), end=False)
    server.talk()
    server.h2.send_headers(number, [(b":status", b"200")])
    for _ in range(50):
        for _ in range(65):
            server.h2.send_data(number, wrapped(b"a" * 16000))
        server.talk()
    assert len(server.told) == 50 * 65  # some 50 MB, where 16 MB may be on their way


def test_a_call_that_nobody_waits_for_is_ended_and_its_answer_is_nothing() -> None:
    channel = Channel("x:1", tls=False)
    server = Server(channel)
    number, other = (channel.call(PATHS[0], b"", ()) for _ in range(2))
    server.talk()
    channel.forget(number)
    server.answer(other, b"", None)
    server.talk()
    assert server.reset == {number}
    assert [told.stream for told in server.told] == [other, other]


def test_headers_in_parts_are_put_together() -> None:
    channel = Channel("x:1", tls=False)
    server = Server(channel)
    number = channel.call(PATHS[0], b"", ())
    server.talk()
    server.h2.send_headers(number, [(b":status", b"200")])
    trailers = [(b"grpc-status", b"0"), (b"grpc-message", b"a" * 40_000)]
    server.h2.send_headers(number, trailers, end_stream=True)
    server.talk()
    assert [told.status.code for told in server.told if told.status] == [OK]


def test_no_more_streams_are_opened_than_the_server_wants() -> None:
    channel = Channel("x:1", tls=False)
    channel.feed(frame(SETTINGS, 0, 0, setting(3, 2)))
    channel.call(PATHS[0], b"", ())
    channel.call(PATHS[0], b"", ())
    with pytest.raises(ChannelError, match="no more calls"):
        channel.call(PATHS[0], b"", ())


BLOCK = hpack.Encoder().encode([(b":status", b"200")])
WRONG = {
    "headers that did not begin": frame(CONTINUATION, END_HEADERS, 1, BLOCK),
    "headers that do not go on": frame(HEADERS, 0, 1, BLOCK) + frame(PING, 0, 0, bytes(8)),
    "headers that go on elsewhere": frame(HEADERS, 0, 1, BLOCK) + frame(CONTINUATION, END_HEADERS, 3, b""),
    "headers without end": frame(HEADERS, 0, 1, BLOCK) + frame(CONTINUATION, 0, 1, b"\x88" * 16000) * 5,
    "a flood of nothing": frame(HEADERS, 0, 1, BLOCK) + frame(CONTINUATION, 0, 1, b""),
    "headers that cannot be read": frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff"),
    "more padding than there is": frame(DATA, 8, 1, b"\5abc"),
    "a frame that is too large": frame(DATA, 0, 1, bytes(16385)),
    "a stream that nobody began": frame(DATA, 0, 3, b""),
    "a stream of the server's": frame(HEADERS, END_HEADERS, 2, BLOCK),
    "a push": frame(PUSH_PROMISE, END_HEADERS, 1, b"\0\0\0\2" + BLOCK),
    "a window that grows by nothing": frame(WINDOW_UPDATE, 0, 0, bytes(4)),
    "a window without bounds": frame(WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"),
    "a window of an odd size": frame(WINDOW_UPDATE, 0, 0, b"\1"),
    "settings of an odd size": frame(SETTINGS, 0, 0, b"\1"),
    "windows of 4 GiB": frame(SETTINGS, 0, 0, setting(4, (1 << 32) - 1)),
    "frames of no size": frame(SETTINGS, 0, 0, setting(5, 1)),
    "a ping of an odd size": frame(PING, 0, 0, b"1"),
    "a reset of an odd size": frame(RESET, 0, 1, b"1"),
}


@pytest.mark.parametrize("said", WRONG.values(), ids=WRONG)
def test_what_is_not_http2_ends_the_connection(said: bytes) -> None:
    channel = Channel("x:1", tls=False)
    channel.call(PATHS[0], b"", ())
    channel.feed(frame(SETTINGS, 0, 0))
    with pytest.raises(ChannelError, match="does not speak HTTP/2 as expected") as told:
        channel.feed(said)
    assert isinstance(told.value.__cause__, NotHttp2)


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", PREFACE, frame(PING, 0, 0, bytes(8))])
def test_who_does_not_begin_with_settings_does_not_speak_http2(said: bytes) -> None:
    with pytest.raises(ChannelError, match="HTTP/2"):
        Channel("x:1", tls=False).feed(said)


def test_kinds_of_frames_that_nobody_knows_are_passed_over() -> None:
    channel = Channel("x:1", tls=False)
    assert channel.feed(frame(SETTINGS, 0, 0) + frame(99, 255, 7, b"later") + frame(2, 0, 1, bytes(5))) == []


def test_a_ping_is_answered() -> None:
    channel = Channel("x:1", tls=False)
    channel.feed(frame(SETTINGS, 0, 0))
    channel.outgoing()
    assert channel.feed(frame(PING, 0, 0, b"12345678")) == []
    assert channel.outgoing() == frame(PING, 1, 0, b"12345678")
    assert channel.feed(frame(PING, 1, 0, b"holdfast")) == [Told(0)]
