"""What a server says in the login is looked at before libpq reads it.

With SCRAM the server says how often the password is to be hashed, and libpq believes it, in one go: two thousand million times
if it is told so, a quarter of an hour in which no thread of this process runs, nor its event loop. And that is said before
anybody has shown who they are.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import socket
import sys
from typing import Any

from psycopg import pq

MOST_ROUNDS = 1_000_000  # half a second; PostgreSQL itself has 4096, unless scram_iterations says otherwise
_OK, _SALT, _LAST = 0, 11, 12  # AuthenticationOk, AuthenticationSASLContinue and -Final
_LONGEST = 8192  # of what libpq reads in a login it takes 2000 bytes at a time
_IN_LOGIN = b"Rv"  # else it is an error, and the end of it
_NEXT = (_OK, 8, _SALT, _LAST)  # after what we answered; 8: of GSSAPI
_SHORTEST = 9
_ROUNDS = re.compile(rb"i=([0-9]{1,9})")  # no space and no sign, which libpq would pass over
_WANT_READ = 2


class Unhashable(Exception):
    """Not to be handed to libpq."""


class Login:
    """What has been said in one. libpq reads all that has come, also what came after we looked, and not every word to its end. So
    whoever has asked for something is heard again only with what belongs to it: other words would hide what is behind them.
    """

    def __init__(self) -> None:
        self._with: object = None
        self._asked = self._salted = False

    def is_whole(self, pgconn: pq.abc.PGconn) -> bool:
        """May libpq go on and read? False: what is said has not come whole, wait for more. Unhashable: no."""
        if pgconn.status != pq.ConnStatus.AWAITING_RESPONSE:
            return True
        with _borrowed(pgconn.socket) as line:
            try:
                self._meet(line.getsockname() if sys.platform == "win32" else os.fstat(line.fileno()).st_ino)
                if self._salted:  # which libpq does once
                    return True
                if pgconn.ssl_in_use:
                    return self._is_whole_in_tls(pgconn)
                said = line.recv(_LONGEST, socket.MSG_PEEK)
            except BlockingIOError:
                return False
            except OSError:
                return True  # libpq will find out
            lacking = self._listen(said)
            if sys.platform != "win32":  # wake us then; Windows wakes us all the time
                line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, len(said) + lacking if lacking else 1)
            return not lacking

    def _is_whole_in_tls(self, pgconn: pq.abc.PGconn) -> bool:
        said = _peeked_through_tls(pgconn)
        if said and self._listen(said):  # and the rest is not to be seen before this is read
            raise Unhashable("it speaks of the login in pieces")
        return said != b""

    def _meet(self, whom: object) -> None:
        """libpq may go on to another host, or begin again without TLS."""
        if whom != self._with:
            self._with = whom
            self._asked = self._salted = False

    def _listen(self, said: bytes) -> int:
        """How many bytes are missing."""
        if self._asked and said:
            if len(said) < _SHORTEST:
                return _SHORTEST - len(said)
            if not _belongs(said):
                raise Unhashable("it asks for one thing after the other")
        kinds: list[int] = []
        lacking = missing(said, kinds)
        if not lacking and kinds:
            self._asked = True
            self._salted = kinds[0] == _SALT
        return lacking


def _belongs(said: bytes) -> bool:
    """To what we have answered; and it is no rest of something of which libpq has read the beginning."""
    if said[:1] == b"E":
        return said[1:2] == b"\0" and said[5:7] != b"r="
    return said[:3] == b"R\0\0" and int.from_bytes(said[5:9], "big") in _NEXT


def missing(said: bytes, kinds: list[int] | None = None) -> int:
    """How many bytes at least, until what is said of the login is whole. Unhashable: it is too much to ask.

    Into `kinds` goes what is asked for.
    """
    at = 0
    while at < len(said) and said[at] in _IN_LOGIN:
        if len(said) < at + 5:
            return at + 5 - len(said)
        end = at + 1 + int.from_bytes(said[at + 1 : at + 5], "big")
        if not at + 9 <= end <= at + _LONGEST // 2:
            return 0  # which libpq refuses
        if len(said) < end:
            return end - len(said)
        if said[at] == _IN_LOGIN[0]:
            kind = int.from_bytes(said[at + 5 : at + 9], "big")
            if kinds is not None:
                kinds.append(kind)
            if kind == _OK:
                return 0
            # libpq hashes what comes in place of the salt, also if it is called the last word.
            if kind == _SALT or (kind == _LAST and said[at + 9 : at + 11] == b"r="):
                _check_rounds(said[at + 9 : end])
        at = end
    return 0


def _check_rounds(salted: bytes) -> None:
    """`r=…,s=…,i=4096`"""
    third = (*salted.split(b","), b"", b"", b"")[2]
    found = _ROUNDS.fullmatch(third)
    if found is None or int(found[1]) > MOST_ROUNDS:
        wanted = third.removeprefix(b"i=")[:20].decode("ascii", "replace")
        raise Unhashable(f"it wants the login hashed {wanted!r} times; {MOST_ROUNDS:,} are the most that we do")


class _borrowed:
    """libpq's socket, which stays libpq's."""

    def __init__(self, number: int) -> None:
        self._socket = socket.socket(fileno=number)
        self._socket.setblocking(False)  # as libpq has it, and whatever socket.setdefaulttimeout() says

    def __enter__(self) -> socket.socket:
        return self._socket

    def __exit__(self, *_: object) -> None:
        self._socket.detach()


def _peeked_through_tls(pgconn: Any) -> bytes | None:
    """b"": nothing yet. None: it cannot be told, and libpq will find out."""
    library = _library()
    ssl = library.PQsslStruct(pgconn.pgconn_ptr, b"OpenSSL") if library else None
    if not ssl:
        return None
    buffer = ctypes.create_string_buffer(_LONGEST)
    library.ERR_clear_error()  # else an old one is taken for this one's
    length = library.SSL_peek(ssl, buffer, _LONGEST)
    if length > 0:
        return buffer.raw[:length]
    return b"" if library.SSL_get_error(ssl, length) == _WANT_READ else None


@functools.cache
def _library() -> Any:
    """libpq and its OpenSSL, as psycopg has loaded them; None: they are not to be found."""
    try:
        psycopg = str(sys.modules[pq.PGconn.__module__].__file__)
        if psycopg.endswith(".py"):
            from psycopg.pq.misc import find_libpq_full_path

            psycopg = find_libpq_full_path() or ""
        library = ctypes.CDLL(psycopg)  # and all that it is linked with
        library.ERR_clear_error.argtypes = []
        library.PQsslStruct.restype = ctypes.c_void_p
        library.PQsslStruct.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
        library.SSL_peek.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
        library.SSL_get_error.argtypes = [ctypes.c_void_p, ctypes.c_int]
    except (AttributeError, OSError, ImportError):
        return None
    return library
