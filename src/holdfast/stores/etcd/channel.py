"""gRPC over one HTTP/2 connection, without the connection: bytes in, bytes out.

Why not grpcio: its C core runs threads of its own and does not survive a fork, its retries and deadlines are its own, and it
is a big thing to install for a dozen messages. etcd's JSON gateway cannot carry many watches on one connection. Nor h2:
it costs more than all the rest of a claim in this process, for a state machine of everything that HTTP/2 can be. So it is by
hand, as far as such a client needs it: frames (RFC 9113), calls, how much may be on its way, and how a call ended.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote

from .headers import LONGEST, Header, HeaderReader, HeaderWriter, NotHttp2, unremembered

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, PRIORITY, RESET, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 1
END_HEADERS, PADDED, WITH_PRIORITY = 4, 8, 32
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = range(1, 6)

LARGEST = 16384  # bytes of a frame, unless more is agreed on
LARGEST_TO_AGREE_ON = (1 << 24) - 1
_WINDOW = 1 << 24  # how much may be on its way to us: a list of names is longer than HTTP/2's 64 KiB

MOST = 1 << 20  # bytes of one message to us
MOST_LISTED = 1 << 26  # if it is a list: of names, of those inside, of a lease's keys
_USUAL_WINDOW = (1 << 16) - 1  # before anybody has said another
_WIDEST = (1 << 31) - 1
_LAST_STREAM = (1 << 31) - 1
_CANCEL = (8).to_bytes(4, "big")
_LISTS = (b"/etcdserverpb.KV/", b"/etcdserverpb.Lease/LeaseTimeToLive")

OK, INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED = 0, 3, 5, 7, 8
FAILED_PRECONDITION, UNAVAILABLE, UNAUTHENTICATED = 9, 14, 16
_RESET = 13  # INTERNAL: the stream ended without a word
_REFUSED_STREAM = (7).to_bytes(4, "big")
_UNTIL_GREETED = 100  # streams: fewer should nobody allow, says the RFC


# ---- frames


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return (len(payload) << 48 | kind << 40 | flags << 32 | stream).to_bytes(9, "big") + payload


def setting(key: int, value: int) -> bytes:
    return key.to_bytes(2, "big") + value.to_bytes(4, "big")


class Incoming:
    """What arrives, cut into frames. Header blocks that come in parts are put together."""

    def __init__(self) -> None:
        self._unread = b""
        self._begun: Frame | None = None  # a header block, of which more is to come

    def feed(self, received: bytes) -> list[Frame]:
        found: list[Frame] = []
        unread = self._unread + received if self._unread else received
        at, length = 0, len(unread)
        while length - at >= 9:
            size = int.from_bytes(unread[at : at + 3], "big")
            if size > LARGEST:
                raise NotHttp2(f"a frame of {size} bytes was announced")
            end = at + 9 + size
            if length < end:
                break
            kind, flags = unread[at + 3], unread[at + 4]
            one = Frame(kind, flags, int.from_bytes(unread[at + 5 : at + 9], "big") & 0x7FFFFFFF, unread[at + 9 : end])
            at = end
            if self._begun is not None or kind == CONTINUATION or (kind == HEADERS and not flags & END_HEADERS):
                whole = self._together(one)
                if whole is None:
                    continue
                one = whole
            found.append(one)
        self._unread = unread[at:]
        return found

    def _together(self, part: Frame) -> Frame | None:
        begun = self._begun
        if begun is None:
            if part.kind != HEADERS:
                raise NotHttp2("headers that go on, and did not begin")
            self._begun = part._replace(flags=part.flags & ~(PADDED | WITH_PRIORITY), payload=unpadded(part))
            return None
        if part.kind != CONTINUATION or part.stream != begun.stream:
            raise NotHttp2("headers that were begun do not go on")
        block = begun.payload + part.payload
        if len(block) > LONGEST or not part.payload:
            raise NotHttp2("headers without end")
        whole = begun._replace(flags=begun.flags | part.flags & END_HEADERS, payload=block)
        self._begun = None if part.flags & END_HEADERS else whole
        return None if self._begun else whole


def unpadded(one: Frame) -> bytes:
    """Of DATA or HEADERS."""
    payload = one.payload
    if one.flags & PADDED:
        if not payload or payload[0] >= len(payload):
            raise NotHttp2("more padding than there is")
        payload = payload[1 : len(payload) - payload[0]]
    if one.kind == HEADERS and one.flags & WITH_PRIORITY:
        payload = payload[5:]
    return payload


_HELLO = (
    PREFACE
    + frame(SETTINGS, 0, 0, setting(ENABLE_PUSH, 0) + setting(INITIAL_WINDOW_SIZE, _WINDOW))
    + frame(WINDOW_UPDATE, 0, 0, _WINDOW.to_bytes(4, "big"))
)


# ---- calls


class Status(NamedTuple):
    """How a call ended, by gRPC's code."""

    code: int
    message: str = ""


REFUSED = Status(UNAVAILABLE, "more calls at once than the server takes")  # it has not looked at this one


class Told(NamedTuple):
    """A message of a stream; or, at its end, the status."""

    stream: int
    message: bytes = b""
    status: Status | None = None


class ChannelError(ConnectionError):
    """The connection can carry nothing more."""


class _Stream:
    __slots__ = ("buffer", "eaten", "end", "most", "room", "status", "unsent")

    def __init__(self, most: int, room: int) -> None:
        self.most = most
        self.room = room  # bytes that the server would take
        self.eaten = 0  # bytes that we have read, and not said so
        self.buffer = bytearray()
        self.unsent = b""  # what the server's window has no room for yet
        self.end = False
        self.status: Status | None = None


class Channel:
    def __init__(self, authority: str, *, tls: bool) -> None:
        self._incoming = Incoming()
        self._reader = HeaderReader()
        self._writer = HeaderWriter(
            (b":method", b"POST"),
            (b":scheme", b"https" if tls else b"http"),
            (b":authority", authority.encode()),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
        )
        self._outgoing = bytearray(_HELLO)
        self.streams: dict[int, _Stream] = {}
        self._next = 1
        self._greeted = False
        self._room = self._their_window = _USUAL_WINDOW
        self._eaten = 0
        self._largest = LARGEST
        self.most_streams = _UNTIL_GREETED  # at once

    def call(self, path: bytes, message: bytes, metadata: tuple[Header, ...], *, end: bool = True) -> int:
        """Begin a call; the number of its stream. `end`: nothing more will be sent on it."""
        number = self._next
        if number > _LAST_STREAM or len(self.streams) >= self.most_streams:
            raise ChannelError("no more calls are to be had on this connection")
        self._next += 2
        block = self._writer.known.get(path) or self._writer.write(path)
        if metadata:
            block += unremembered(metadata)
        if len(block) > LARGEST:
            raise ChannelError(f"{len(block)} bytes of headers are too many: is this a login?")
        self._outgoing += frame(HEADERS, END_HEADERS, number, block)
        self.streams[number] = _Stream(MOST_LISTED if path.startswith(_LISTS) else MOST, self._their_window)
        self.send(number, message, end=end)
        return number

    def send(self, number: int, message: bytes, *, end: bool = False) -> None:
        stream = self.streams.get(number)
        if stream is None:
            return  # it has ended meanwhile: whoever reads it is told
        stream.unsent += b"\0" + len(message).to_bytes(4, "big") + message
        stream.end = end
        self._pump(number, stream)

    def forget(self, number: int) -> None:
        """Nobody waits for this call any more."""
        if self.streams.pop(number, None) is not None:
            self._outgoing += frame(RESET, 0, number, _CANCEL)

    def ping(self) -> None:
        self._outgoing += frame(PING, 0, 0, b"holdfast")

    def outgoing(self) -> bytes:
        waiting = bytes(self._outgoing)
        self._outgoing.clear()
        return waiting

    def feed(self, received: bytes) -> list[Told]:
        """What the server said; b"": it hung up. Answers that must go out on account of it are in `outgoing`."""
        if not received:
            raise ChannelError("the server closed it")
        told: list[Told] = []
        try:
            for one in self._incoming.feed(received):
                self._hear(one, told)
        except NotHttp2 as error:
            raise ChannelError(f"the server does not speak HTTP/2 as expected: {error}") from error
        return told

    def _hear(self, one: Frame, told: list[Told]) -> None:
        kind, flags, number, payload = one
        if not self._greeted:
            if kind != SETTINGS or flags & ACK:
                raise NotHttp2("it begins without its settings")
            self._greeted, self.most_streams = True, _LAST_STREAM
        if kind == DATA:
            self._ours(number)
            self._count(number, len(payload), over=bool(flags & END_STREAM))
            self._messages(number, unpadded(one) if flags & PADDED else payload, told)
            if flags & END_STREAM:
                self._ended(number, told)
        elif kind == HEADERS:
            self._ours(number)
            block = unpadded(one) if flags & (PADDED | WITH_PRIORITY) else payload
            known = self._reader.known.get(block)
            self._note_status(number, self._reader.read(block) if known is None else known)
            if flags & END_STREAM:
                self._ended(number, told)
        elif kind == WINDOW_UPDATE:
            self._widened(number, int.from_bytes(_sized(payload, 4), "big") & _WIDEST)
        elif kind == SETTINGS:
            self._agree(number, flags, payload)
        elif kind == PING:
            if number or len(payload) != 8:
                raise NotHttp2("a ping of a kind that there is not")
            if flags & ACK:
                told.append(Told(0))
            else:
                self._outgoing += frame(PING, ACK, 0, payload)
        elif kind == RESET:
            self._ours(number)
            if _sized(payload, 4) == _REFUSED_STREAM and number in self.streams:
                self.streams[number].status = REFUSED
            self._ended(number, told)
        elif kind == GOAWAY:
            raise ChannelError("the server said goodbye")
        elif kind == PUSH_PROMISE:
            raise NotHttp2("it pushes what nobody asked for")
        # Priorities, and kinds of frames that nobody had thought of yet, say nothing that we need.

    def _ours(self, number: int) -> None:
        if not number & 1 or number >= self._next:
            raise NotHttp2(f"it speaks of stream {number}, which nobody began")

    def _ended(self, number: int, told: list[Told]) -> None:
        stream = self.streams.pop(number, None)
        if stream is not None:
            told.append(Told(number, status=stream.status or Status(_RESET, "the stream ended without a status")))

    # ---- how much may be on its way

    def _count(self, number: int, size: int, *, over: bool) -> None:
        """Say now and then that we have read it, so that more may come."""
        self._eaten += size
        if self._eaten > _WINDOW // 2:
            self._outgoing += frame(WINDOW_UPDATE, 0, 0, self._eaten.to_bytes(4, "big"))
            self._eaten = 0
        stream = self.streams.get(number)
        if stream is not None and not over:
            stream.eaten += size
            if stream.eaten > _WINDOW // 2:
                self._outgoing += frame(WINDOW_UPDATE, 0, number, stream.eaten.to_bytes(4, "big"))
                stream.eaten = 0

    def _widened(self, number: int, by: int) -> None:
        stream = self.streams.get(number)
        if number == 0:
            self._room += by
        elif stream is not None:
            stream.room += by
        if not by or self._room > _WIDEST or (stream is not None and stream.room > _WIDEST):
            raise NotHttp2(f"a window that is {by} bytes wider")
        self._pump_all()

    def _agree(self, number: int, flags: int, payload: bytes) -> None:
        if number or len(payload) % 6 or (flags & ACK and payload):
            raise NotHttp2("settings of a kind that there is not")
        if flags & ACK:
            return
        for at in range(0, len(payload), 6):
            key, value = int.from_bytes(payload[at : at + 2], "big"), int.from_bytes(payload[at + 2 : at + 6], "big")
            if key == HEADER_TABLE_SIZE:
                self._writer.shrink(value)
            elif key == MAX_CONCURRENT_STREAMS:
                self.most_streams = value
            elif key == INITIAL_WINDOW_SIZE:
                if value > _WIDEST:
                    raise NotHttp2(f"windows of {value} bytes")
                for stream in self.streams.values():
                    stream.room += value - self._their_window
                self._their_window = value
            elif key == MAX_FRAME_SIZE:
                if not LARGEST <= value <= LARGEST_TO_AGREE_ON:
                    raise NotHttp2(f"frames of {value} bytes")
                self._largest = value
        self._outgoing += frame(SETTINGS, ACK, 0)
        self._pump_all()

    def _pump_all(self) -> None:
        for number, stream in self.streams.items():
            if stream.unsent:
                self._pump(number, stream)

    def _pump(self, number: int, stream: _Stream) -> None:
        """Send what the server has room for; the rest goes when it says that there is more."""
        while stream.unsent:
            room = min(self._room, stream.room, self._largest)
            if room <= 0:
                return
            piece, stream.unsent = stream.unsent[:room], stream.unsent[room:]
            self._room -= len(piece)
            stream.room -= len(piece)
            last = stream.end and not stream.unsent
            self._outgoing += frame(DATA, END_STREAM if last else 0, number, piece)

    # ---- what a call was told

    def _messages(self, number: int, piece: bytes, told: list[Told]) -> None:
        stream = self.streams.get(number)
        if stream is None:
            return
        buffer = stream.buffer
        buffer += piece
        while len(buffer) >= 5:
            size = 5 + int.from_bytes(buffer[1:5], "big")
            if buffer[0] or size > stream.most:
                raise ChannelError(f"a message of {size} bytes was announced, of which {stream.most} would be believed")
            if len(buffer) < size:
                break
            told.append(Told(number, bytes(buffer[5:size])))
            del buffer[:size]

    def _note_status(self, number: int, found: dict[bytes, bytes]) -> None:
        stream = self.streams.get(number)
        if stream is None:
            return
        if b"grpc-status" in found:
            message = unquote(found.get(b"grpc-message", b"").decode(errors="replace"))
            code = found[b"grpc-status"]
            stream.status = Status(int(code) if code.isdigit() and len(code) < 4 else _RESET, message)
        elif found.get(b":status", b"200") != b"200" and not found[b":status"].startswith(b"1"):
            stream.status = Status(
                UNAVAILABLE, f"HTTP {found[b':status'].decode(errors='replace')}: is this an etcd's client port?"
            )


def _sized(payload: bytes, size: int) -> bytes:
    if len(payload) != size:
        raise NotHttp2(f"{len(payload)} bytes where {size} are said")
    return payload
