"""What a server says in the login is looked at before libpq reads it.

With SCRAM the server says how often the password is to be hashed, and libpq believes it, in one go: two thousand million times
if it is told so, a quarter of an hour in which no thread of this process runs, nor its event loop. And that is said before
anybody has shown who they are.

libpq reads all that has come: also what came after we looked, and what was sent behind the "no" to its question for TLS. And it
does not read every word to its end: what stands there is the next word. So it may have the beginning of something that
we never saw. Hence the rule: each word is the next one of a login, and has, to the byte, the form that PostgreSQL gives it. Such
a word is no rest of another: libpq takes it for the same as we, or gives up.
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

from ...claim import printable
from ...drivers.descriptors import another
from ...drivers.sockets import has_hung_up

MOST_ROUNDS = 1_000_000  # half a second; PostgreSQL itself has 4096, unless scram_iterations says otherwise
_LONGEST = 8192  # of what libpq reads in a login it takes 2000 bytes at a time
_LONGEST_WORD = 2000
_HEAD = 9  # a letter, the length, and what is asked for

# What is asked for by the words that begin with an R.
_OK, _PASSWORD, _MD5, _GSS, _GSS_MORE, _SSPI, _MECHANISMS, _SALT = 0, 3, 5, 7, 8, 9, 10, 11
_BEGIN, _VERSION, _ERROR = "begin", "version", "error"  # nothing was said; words of other letters
_FIRST = (_OK, _PASSWORD, _MD5, _GSS, _SSPI, _MECHANISMS, _ERROR)
_AFTER: dict[object, tuple[object, ...]] = {
    _BEGIN: (*_FIRST, _VERSION),
    _VERSION: _FIRST,
    _PASSWORD: (_OK, _ERROR),
    _MD5: (_OK, _ERROR),
    _GSS: (_GSS_MORE, _OK, _ERROR),
    _GSS_MORE: (_GSS_MORE, _OK, _ERROR),
    _SSPI: (_GSS_MORE, _OK, _ERROR),
    _MECHANISMS: (_SALT, _ERROR),
}
_FORMS = {
    _OK: re.compile(rb""),
    _PASSWORD: re.compile(rb""),
    _MD5: re.compile(rb".{4}", re.DOTALL),
    _GSS: re.compile(rb""),
    _GSS_MORE: re.compile(rb"[^\0].*", re.DOTALL),
    _SSPI: re.compile(rb""),
    _MECHANISMS: re.compile(rb"([A-Z0-9_-]{1,20}\0)+\0"),
    # A number has no space and no sign, which libpq would pass over.
    _SALT: re.compile(rb"r=[!-+\--~]+,s=[A-Za-z0-9+/=]+,i=([0-9]{1,9})"),
}
_NAMES = re.compile(rb"([^\0]+\0)*")
_WANT = (2, 3)  # more to read, or room to write


class Unhashable(Exception):
    """Not to be handed to libpq."""


class Login:
    """What has been said in one."""

    def __init__(self) -> None:
        self._with: object = None
        self._last: object = _BEGIN

    def is_whole(self, pgconn: pq.abc.PGconn) -> bool:
        """May libpq go on and read? False: what is said has not come whole, wait for more. Unhashable: no."""
        if pgconn.status != pq.ConnStatus.AWAITING_RESPONSE:
            return True
        with _borrowed(pgconn.socket) as line:
            try:
                self._meet(line.getsockname() if sys.platform == "win32" else os.fstat(line.fileno()).st_ino)
                if self._last in (_SALT, _ERROR):  # libpq hashes once, and goes on after no error
                    return True
                if pgconn.ssl_in_use:
                    return self._is_whole_in_tls(pgconn)
                said = line.recv(_LONGEST, socket.MSG_PEEK)
            except BlockingIOError:
                return False
            except OSError:
                return True  # libpq will find out
            lacking = self.listen(said)
            if lacking and has_hung_up(line):  # and would wake us all the time
                raise Unhashable("it hung up in the middle of a word")
            if sys.platform != "win32":  # wake us then; Windows wakes us all the time
                line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, len(said) + lacking if lacking else 1)
            return not lacking

    def _is_whole_in_tls(self, pgconn: pq.abc.PGconn) -> bool:
        said = _peeked_through_tls(pgconn)
        if said and self.listen(said):  # and the rest is not to be seen before this is read
            raise Unhashable("it speaks of the login in pieces")
        return said != b""

    def _meet(self, whom: object) -> None:
        """libpq may go on to another host, or begin again without TLS."""
        if whom != self._with:
            self._with = whom
            self._last = _BEGIN

    def listen(self, said: bytes) -> int:
        """How many bytes at least are missing, until it is whole; 0: it is to be handed to libpq."""
        last, at = self._last, 0
        while at < len(said):
            if last in (_OK, _SALT, _ERROR) and at:  # what comes then is of no login
                break
            kind, end = _read(said[at:])
            if kind is None:
                return end
            if kind not in _AFTER.get(last, ()):
                raise Unhashable("it asks for one thing after the other")
            last, at = kind, at + end
        self._last = last
        return 0


def _read(said: bytes) -> tuple[object, int]:
    """What the first word is, and where it ends. None: it is not whole, so many bytes at least are missing."""
    if said[0] not in b"RvE":
        raise _strange(said)
    if len(said) < _HEAD:
        return None, _HEAD - len(said)
    length = int.from_bytes(said[1:5], "big")
    if said[:1] == b"E":  # the end, for libpq, whether it is whole or not
        if length >= 1 << 16 or not said[5:6].isupper():
            raise _strange(said)
        return _ERROR, len(said)
    if not 8 <= length <= _LONGEST_WORD:
        raise _strange(said)
    if len(said) <= length:
        return None, length + 1 - len(said)
    kind, body = int.from_bytes(said[5:9], "big"), said[_HEAD : length + 1]
    if said[:1] == b"v":
        number = int.from_bytes(body[:4], "big")
        if kind >> 16 != 3 or len(body) < 4 or number != body.count(b"\0", 4) or not _NAMES.fullmatch(body, 4):
            raise _strange(said)
        return _VERSION, length + 1
    found = _FORMS[kind].fullmatch(body) if kind in _FORMS else None
    if kind == _SALT and (found is None or int(found[1]) > MOST_ROUNDS):
        wanted = body.rpartition(b",i=")[2][:20].decode("ascii", "replace")
        raise Unhashable(f"it wants the login hashed {wanted!r} times; {MOST_ROUNDS:,} are the most that we do")
    if found is None:
        raise _strange(said)
    return kind, length + 1


def _strange(said: bytes) -> Unhashable:
    # Also what PostgreSQL says when it cannot even start a process: an E, and text.
    return Unhashable(f"it does not speak of a login as PostgreSQL does: {printable(said.decode('latin-1'), 200)!r}")


class _borrowed:
    """libpq's socket, which stays libpq's: under a number of our own, since whoever is interrupted closes what it has."""

    def __init__(self, number: int) -> None:
        self._socket = another(number)
        self._socket.setblocking(False)  # as libpq has it, and whatever socket.setdefaulttimeout() says

    def __enter__(self) -> socket.SocketType:
        return self._socket

    def __exit__(self, *_: object) -> None:
        self._socket.close()


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
    return b"" if library.SSL_get_error(ssl, length) in _WANT else None


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
