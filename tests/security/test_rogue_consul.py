"""Who answers as Consul, and has books that are short on the way and long to read."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import time
import zlib
from collections.abc import Callable

import pytest

import holdfast
import holdfast.aio
from holdfast import HoldfastError, Unavailable
from holdfast.stores.consul.book import Book

from .rogue import Answer, rogue

MIDDLE = b"\n],[\n"  # between those inside and those in line
IN_LINE = b'["%020d","%036d",1,' % (0, 0)


def said(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nX-Consul-Index: 5\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def pair(key: str, value: bytes) -> dict[str, object]:
    return {"KV": {"Key": key, "Value": base64.b64encode(value).decode(), "ModifyIndex": 3, "Session": ""}}


def consul(has: Callable[[str], list[tuple[str, bytes]]]) -> Answer:
    """`has`: what there is below a key."""

    def converse(line: socket.socket) -> None:
        while asked := line.recv(1 << 20):
            head, _, body = asked.partition(b"\r\n\r\n")
            if b"/v1/txn" not in head:
                line.sendall(said(b'{"ID": "%b"}' % (b"a" * 36)))
                continue
            wanted = [step["KV"]["Key"] for step in json.loads(body or line.recv(1 << 20)) if "KV" in step]
            found = [pair(key, value) for one in wanted for key, value in has(one)]
            line.sendall(said(json.dumps({"Results": found, "Errors": None}).encode()))

    return converse


def no_book(number: int) -> bytes:
    """It begins as one, and seems to go on as one again and again."""
    return b"[1,[\n" + MIDDLE * number + b"x"


def layout() -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match="no book"):
        Book.read(zlib.compress(no_book(15_000)), 1, "")
    assert time.process_time() - began < 0.5


@pytest.mark.timeout(60)
def test_a_book_of_nothing_but_its_middle_is_read_once() -> None:
    """Looked through anew from each of them, it would take days; and it is some kilobytes on the way."""
    layout()


def look(url: str) -> None:
    with holdfast.connect(url) as locks:
        locks.inspect("x")


def look_a(url: str) -> None:
    async def main() -> None:
        async with holdfast.aio.connect(url) as locks:
            await locks.inspect("x")

    asyncio.run(main())


@pytest.mark.timeout(60)
@pytest.mark.parametrize("looks", [look, look_a])
def test_who_has_such_a_book_keeps_nobody(looks: Callable[[str], None]) -> None:
    bomb = zlib.compress(no_book(3_000_000))
    with rogue(consul(lambda key: [(key, bomb)]), speaks_first=True) as address:
        began = time.monotonic()
        with pytest.raises(HoldfastError, match="not holdfast's"):
            looks(f"consul://{address}?timeout=5")
        assert time.monotonic() - began < 10


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ENDLESS = {
    "trailers": (CHUNKED + b"0\r\n", b"a: b\r\n" * 1000),
    "extensions": (CHUNKED, b"1;%b\r\n \r\n" % (b"x" * 60_000)),
    "chunks": (CHUNKED, b"1\r\n \r\n" * 1000),
}


def endless(what: str, looks: Callable[[str], None] = look) -> None:
    begins, more = ENDLESS[what]

    def answer(line: socket.socket) -> None:
        line.recv(1 << 16)
        line.sendall(begins)
        ends = time.monotonic() + 4  # so that a test that fails comes to an end
        while time.monotonic() < ends:
            line.sendall(more)
        line.shutdown(socket.SHUT_RDWR)

    with rogue(answer, speaks_first=True) as address:
        began = time.monotonic()
        with pytest.raises(Unavailable):
            looks(f"consul://{address}?timeout=0.5")
        assert time.monotonic() - began < 3


@pytest.mark.timeout(60)
@pytest.mark.parametrize("looks", [look, look_a])
@pytest.mark.parametrize("what", ENDLESS)
def test_who_goes_on_and_on_is_listened_to_until_the_deadline(what: str, looks: Callable[[str], None]) -> None:
    """There is always something to read, so nobody ever waits."""
    endless(what, looks)


def names_of_long_books() -> None:
    book = zlib.compress(b"[1,[\n" + MIDDLE + IN_LINE + b" " * (1 << 18) + b"\n]]")
    with (
        pytest.MonkeyPatch.context() as patched,
        rogue(consul(lambda key: [(f"{key}{at}:", book) for at in range(8)]), speaks_first=True) as address,
        holdfast.connect(f"consul://{address}?timeout=1") as locks,
    ):
        patched.setattr("holdfast.stores.consul.looking.MOST_LISTED", 1 << 20)
        with pytest.raises(Unavailable, match="MB of books"):
            locks.names()


@pytest.mark.timeout(60)
def test_books_that_are_short_on_the_way_have_a_bound_together_unpacked() -> None:
    """A kilobyte is a megabyte of spaces: of 64 MB of them nothing is left of a machine."""
    names_of_long_books()


def test_books_are_read_as_they_were_written() -> None:
    for text in (b"[1,[\n\n],[\n\n]]", b"[12,[\n\n],[\n" + IN_LINE + b"\n]]"):
        assert Book.read(text, 1, "").packed()[:1] in (b"[", b"x")
    wrong = [b"[", b"[1]", b"[1,[\n\n]]", b"[x,[\n\n],[\n\n]]", b"[1,[\n\n],[\n\n]", b"[,[\n\n],[\n\n]]"]
    for text in (*wrong, zlib.compress(b""), zlib.compress(b"1,[\n\n],[\n\n]]")):
        with pytest.raises(ValueError, match="no book"):
            Book.read(text, 1, "")
