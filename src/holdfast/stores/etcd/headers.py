"""HTTP/2's header blocks (RFC 7541), as far as a gRPC client needs them. Bytes in, bytes out.

What others say is read by hpack; what we say is the same few headers over and over, and those are numbers after the first
time. What was read or written before is looked up, and not read or written again: in `known`, by whoever calls.
"""

from __future__ import annotations

from collections.abc import Iterable

from hpack import Decoder, HPACKError

Header = tuple[bytes, bytes]
TABLE = 4096  # bytes that both ends remember of headers, unless less is agreed on
LONGEST = 1 << 16  # bytes of a block
KNOWN_AT_MOST = 64  # blocks of headers: a server says some few, again and again


class NotHttp2(ConnectionError):
    """What was said is not HTTP/2, or none that we would go on with."""


class HeaderReader:
    """What the other end says in headers. A block that only says again what was said before is not decoded again."""

    def __init__(self) -> None:
        self._decoder = Decoder(LONGEST)
        self.known: dict[bytes, dict[bytes, bytes]] = {}  # what blocks mean; others are to be read

    def read(self, block: bytes) -> dict[bytes, bytes]:
        try:
            found = dict(self._decoder.decode(block, raw=True))
        except (HPACKError, ValueError) as error:  # ValueError: of Python's, about a number that is too long
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
    """The headers of calls: a path, and what is the `same` in all. It is said once, and then by its number."""

    def __init__(self, *same: Header) -> None:
        self._same = same
        self._said: dict[Header, int] = {}  # the how-manieth it was
        self._room = TABLE
        self.known: dict[bytes, bytes] = {}  # blocks, by path; others are to be written
        self._preamble = b""

    def shrink(self, size: int) -> None:
        """The other end remembers so much. If that is less than is usual, nothing is left to its memory."""
        if size < TABLE and (self._room or self._said):
            self._said.clear()
            self.known.clear()
            self._room, self._preamble = 0, _WITHOUT_A_TABLE

    def write(self, path: bytes) -> bytes:
        before = len(self._said)
        block = b"".join([self._common(header) for header in ((b":path", path), *self._same)])
        if len(self._said) > before or self._preamble:
            self.known.clear()  # what was said before has other numbers now
            block, self._preamble = self._preamble + block, b""
        else:
            self.known[path] = block
        return block

    def _common(self, header: Header) -> bytes:
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


def unremembered(headers: Iterable[Header]) -> bytes:
    """Those in which secrets are: nobody on the way is to remember them."""
    return b"".join([_literal(0x10, 4, *header) for header in headers])


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
