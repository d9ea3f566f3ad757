"""HTTP/2 as far as a gRPC client needs it: frames (RFC 9113) and header blocks (RFC 7541). Bytes in, bytes out.

By hand, and not with h2: that costs more than all the rest of a claim in this process, for a state machine of everything that
HTTP/2 can be. What others say is read by hpack; what we say is the same few headers over and over, and those are numbers after
the first time.
"""

from __future__ import annotations

from typing import NamedTuple

from hpack import Decoder, HPACKError

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, PRIORITY, RESET, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 1
END_HEADERS, PADDED, WITH_PRIORITY = 4, 8, 32
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = range(1, 6)

LARGEST = 16384  # bytes of a frame, unless more is agreed on
LARGEST_TO_AGREE_ON = (1 << 24) - 1
TABLE = 4096  # bytes that both ends remember of headers, unless less is agreed on
_HEADERS_AT_MOST = 1 << 16
KNOWN_AT_MOST = 64  # blocks of headers: a server says some few, again and again


class NotHttp2(ConnectionError):
    """What was said is not HTTP/2, or none that we would go on with."""


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
        if len(block) > _HEADERS_AT_MOST or not part.payload:
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


# ---- header blocks


class HeaderReader:
    """What the other end says in headers. A block that only says again what was said before is not decoded again."""

    def __init__(self) -> None:
        self._decoder = Decoder(_HEADERS_AT_MOST)
        self.known: dict[bytes, dict[bytes, bytes]] = {}  # what blocks mean; others are to be read

    def read(self, block: bytes) -> dict[bytes, bytes]:
        try:
            found = dict(self._decoder.decode(block, raw=True))
        except HPACKError as error:
            raise NotHttp2(f"headers that cannot be read: {error}") from error
        if block and min(block) >= 128 and len(self.known) < KNOWN_AT_MOST:
            self.known[block] = found  # numbers of what is remembered, and of nothing else
        else:
            self.known.clear()  # more is remembered now, and has other numbers
        return found


_STATIC = {(b":method", b"POST"): 3, (b":scheme", b"http"): 6, (b":scheme", b"https"): 7}
_STATIC_NAMES = {b":authority": 1, b":path": 4, b"content-type": 31}
_FIRST_OWN = 62  # the number of what was remembered last
_WITHOUT_A_TABLE = b"\x20"  # the table has no room from here on


class HeaderWriter:
    """The headers of calls. What is the same in many is said once, and then by its number."""

    def __init__(self) -> None:
        self._said: dict[tuple[bytes, bytes], int] = {}  # the how-manieth it was
        self._room = TABLE
        self._blocks: dict[tuple[tuple[bytes, bytes], ...], bytes] = {}
        self._preamble = b""

    def shrink(self, size: int) -> None:
        """The other end remembers so much. If that is less than is usual, nothing is left to its memory."""
        if size < TABLE and (self._room or self._said):
            self._said.clear()
            self._blocks.clear()
            self._room, self._preamble = 0, _WITHOUT_A_TABLE

    def write(self, common: tuple[tuple[bytes, bytes], ...], own: tuple[tuple[bytes, bytes], ...] = ()) -> bytes:
        """`common` is said again and again; `own`, in which secrets are, nobody on the way is to remember."""
        block = self._blocks.get(common)
        if block is None:
            before = len(self._said)
            block = b"".join([self._common(header) for header in common])
            if len(self._said) > before or self._preamble:
                self._blocks.clear()  # what was said before has other numbers now
                block, self._preamble = self._preamble + block, b""
            else:
                self._blocks[common] = block
        return block + b"".join([_literal(0x10, 4, *header) for header in own]) if own else block

    def _common(self, header: tuple[bytes, bytes]) -> bytes:
        number = _STATIC.get(header)
        if number is None and header in self._said:
            number = _FIRST_OWN + len(self._said) - 1 - self._said[header]
        if number is not None:
            return _integer(0x80, 7, number)
        size = 32 + len(header[0]) + len(header[1])
        if size > self._room:
            return _literal(0x00, 4, *header)
        self._room -= size
        self._said[header] = len(self._said)
        return _literal(0x40, 6, *header)


def _literal(how: int, bits: int, name: bytes, value: bytes) -> bytes:
    number = _STATIC_NAMES.get(name)
    named = _integer(how, bits, number) if number else bytes((how,)) + _integer(0, 7, len(name)) + name
    return named + _integer(0, 7, len(value)) + value


def _integer(how: int, bits: int, value: int) -> bytes:
    """A number in the low bits of a byte, and in more if it is too great for those."""
    most = (1 << bits) - 1
    if value < most:
        return bytes((how | value,))
    said, value = bytearray((how | most,)), value - most
    while value >= 128:
        said.append(value & 127 | 128)
        value >>= 7
    said.append(value)
    return bytes(said)
