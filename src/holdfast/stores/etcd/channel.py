"""gRPC over one HTTP/2 connection, without the connection: bytes in, bytes out.

Why not grpcio: its C core runs threads of its own and does not survive a fork, its retries and deadlines are its own, and it
is a big thing to install for a dozen messages. etcd's JSON gateway cannot carry many watches on one connection. What h2
(pure Python) costs is small beside the fsync that etcd does for every write.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    PingAckReceived,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings

_WINDOW = 1 << 24  # how much may be on its way to us: a list of names is longer than HTTP/2's 64 KiB

MOST = 1 << 20  # bytes of one message to us
MOST_LISTED = 1 << 26  # if it is a list: of names, of those inside, of a lease's keys
_LISTS = (b"/etcdserverpb.KV/", b"/etcdserverpb.Lease/LeaseTimeToLive")

OK, INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED = 0, 3, 5, 7, 8
FAILED_PRECONDITION, UNAVAILABLE, UNAUTHENTICATED = 9, 14, 16
_RESET = 13  # INTERNAL: the stream ended without a word


class Status(NamedTuple):
    """How a call ended, by gRPC's code."""

    code: int
    message: str = ""


class Told(NamedTuple):
    """A message of a stream; or, at its end, the status."""

    stream: int
    message: bytes = b""
    status: Status | None = None


class ChannelError(ConnectionError):
    """The connection can carry nothing more."""


class _Stream:
    __slots__ = ("buffer", "end", "most", "status", "unsent")

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self.buffer = bytearray()
        self.unsent = b""  # what the server's window has no room for yet
        self.end = False
        self.status: Status | None = None


class Channel:
    def __init__(self, authority: str, *, tls: bool) -> None:
        config = H2Configuration(
            client_side=True,
            header_encoding=None,
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
            validate_inbound_headers=False,
            normalize_inbound_headers=False,
        )
        self._h2 = H2Connection(config)
        # Given from the start: set later, they would hold here as soon as they are acknowledged, without ever being said.
        settings = {SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW, SettingCodes.ENABLE_PUSH: 0}
        self._h2.local_settings = Settings(client=True, initial_values=settings)
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(_WINDOW)
        self._streams: dict[int, _Stream] = {}
        self._headers = [
            (b":method", b"POST"),
            (b":scheme", b"https" if tls else b"http"),
            (b":authority", authority.encode()),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
        ]

    def call(self, path: bytes, message: bytes, metadata: tuple[tuple[bytes, bytes], ...], *, end: bool = True) -> int:
        """Begin a call; the number of its stream. `end`: nothing more will be sent on it."""
        try:
            number = self._h2.get_next_available_stream_id()
            self._h2.send_headers(number, [(b":path", path), *self._headers, *metadata])
        except H2Error as error:
            raise ChannelError(str(error)) from error
        self._streams[number] = _Stream(MOST_LISTED if path.startswith(_LISTS) else MOST)
        self.send(number, message, end=end)
        return number

    def send(self, number: int, message: bytes, *, end: bool = False) -> None:
        stream = self._streams.get(number)
        if stream is None:
            return  # it has ended meanwhile: whoever reads it is told
        stream.unsent += b"\0" + len(message).to_bytes(4, "big") + message
        stream.end = end
        self._pump(number, stream)

    def forget(self, number: int) -> None:
        """Nobody waits for this call any more."""
        if self._streams.pop(number, None) is not None:
            try:
                self._h2.reset_stream(number, ErrorCodes.CANCEL)
            except H2Error:
                return  # over already

    def ping(self) -> None:
        self._h2.ping(b"holdfast")

    def outgoing(self) -> bytes:
        return self._h2.data_to_send()

    def feed(self, received: bytes) -> list[Told]:
        """What the server said; b"": it hung up. Answers that must go out on account of it are in `outgoing`."""
        if not received:
            raise ChannelError("the server closed it")
        try:
            events = self._h2.receive_data(received)
        except H2Error as error:
            raise ChannelError(f"the server does not speak HTTP/2 as expected: {error}") from error
        told: list[Told] = []
        for event in events:
            if isinstance(event, DataReceived):
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                self._messages(event.stream_id, event.data, told)
            elif isinstance(event, (ResponseReceived, TrailersReceived)):
                self._note_status(event.stream_id, event.headers)
            elif isinstance(event, (StreamEnded, StreamReset)):
                stream = self._streams.pop(event.stream_id, None)
                if stream is not None:
                    status = stream.status or Status(_RESET, "the stream ended without a status")
                    told.append(Told(event.stream_id, status=status))
            elif isinstance(event, (WindowUpdated, RemoteSettingsChanged)):
                for number, stream in list(self._streams.items()):
                    if stream.unsent:
                        self._pump(number, stream)
            elif isinstance(event, ConnectionTerminated):
                raise ChannelError("the server said goodbye")
            elif isinstance(event, PingAckReceived):
                told.append(Told(0))
        return told

    def _pump(self, number: int, stream: _Stream) -> None:
        """Send what the server has room for; the rest goes when it says that there is more."""
        try:
            while stream.unsent:
                room = min(self._h2.local_flow_control_window(number), self._h2.max_outbound_frame_size)
                if room <= 0:
                    return
                piece, stream.unsent = stream.unsent[:room], stream.unsent[room:]
                self._h2.send_data(number, piece, end_stream=stream.end and not stream.unsent)
        except H2Error as error:
            raise ChannelError(str(error)) from error

    def _messages(self, number: int, piece: bytes, told: list[Told]) -> None:
        stream = self._streams.get(number)
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

    def _note_status(self, number: int, headers: object) -> None:
        stream = self._streams.get(number)
        if stream is None:
            return
        found = {bytes(key): bytes(value) for key, value in headers}  # type: ignore[attr-defined]
        if b"grpc-status" in found:
            message = unquote(found.get(b"grpc-message", b"").decode(errors="replace"))
            code = found[b"grpc-status"]
            stream.status = Status(int(code) if code.isdigit() and len(code) < 4 else _RESET, message)
        elif found.get(b":status", b"200") != b"200":
            stream.status = Status(
                UNAVAILABLE, f"HTTP {found[b':status'].decode(errors='replace')}: is this an etcd's client port?"
            )
