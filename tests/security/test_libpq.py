"""What we look at in a login, against a model of how libpq reads it.

Whatever that has begun to read without our seeing it, no word that we let through has it hash for minutes.
"""

from __future__ import annotations

import random
import re
import struct

import pytest

from holdfast.stores.postgresql import salted

NONCE = b"NONCEnonce"
OFTEN = b"r=" + NONCE + b"x,s=c2FsdA==,i=200000000"
MECHANISMS = b"SCRAM-SHA-256\0\0"
ODD = b"REvS\0\0\0\0\1\3\x05\x08\x0a\x0b\x0ca"  # letters of words, and bytes of their lengths and kinds


class Over(Exception):
    """libpq gives up."""


class Libpq:
    """As PQconnectPoll() reads in a login: all that has come, word by word, and not every one to its end."""

    def __init__(self, begun: bytes) -> None:
        self.unread = begun
        self.asked = self.salted = self.kerberos = self.hashes = False

    def read(self, said: bytes) -> bool:
        """Does it go on to listen?"""
        self.unread += said
        while (end := self._word(self.unread)) is not None:
            if end < 0:
                return False
            self.unread = self.unread[end:]
        return True

    def _word(self, said: bytes) -> int | None:
        """How much of it was taken; None: it is not whole; -1: the login is over."""
        if said and said[0] not in b"Rv":  # an error is the end as well
            raise Over
        if len(said) < 5:
            return None
        length = int.from_bytes(said[1:5], "big")
        if not 8 <= length <= 2000:
            raise Over
        if len(said) <= length:
            return None
        if said[:1] == b"v":
            return self._version(said)
        return self._request(said, int.from_bytes(said[5:9], "big"), length + 1)

    def _version(self, said: bytes) -> int:
        number, at = int.from_bytes(said[9:13], "big"), 13
        if said[5:7] != b"\0\3" or number > 20:
            raise Over
        for _ in range(number):
            at = self._text(said, at)
        return at

    def _text(self, said: bytes, at: int) -> int:
        if (end := said.find(b"\0", at)) < 0:
            raise Over
        return end + 1

    def _request(self, said: bytes, kind: int, end: int) -> int:
        if kind == 0 or self.hashes:
            return -1
        if kind in (3, 7):
            self.kerberos = self.kerberos or kind == 7
            return 9
        if kind == 5 and len(said) >= 13:  # whatever the length says
            return 13
        if kind == 8 and self.kerberos:
            return end
        if kind == 10 and not self.asked:
            self.asked, at = True, 9
            while said[at : at + 1] != b"\0":
                at = self._text(said, at)
            return at + 1
        if kind in (11, 12) and self.asked and not self.salted:
            found = re.match(b"r=" + NONCE + rb"[^,]*,s=[^,]*,i=\s*\+?([0-9]+)", said[9:end])
            if found is not None:
                self.hashes = int(found[1]) > salted.MOST_ROUNDS
                self.salted = True
                return -1 if self.hashes else end
        raise Over


def word(kind: int, body: bytes = b"", length: int = 0) -> bytes:
    return b"R" + struct.pack(">II", length or 8 + len(body), kind) + body


def odd(chance: random.Random, length: int) -> bytes:
    return bytes(chance.choice(ODD) for _ in range(length))


def beginning(chance: random.Random) -> bytes:
    """Of something that is to swallow what comes next."""
    some = [
        word(5, length=chance.choice([8, 12, 13, 82, 2000])),
        word(3),
        word(7),
        word(8, length=40),
        word(11, length=60),
    ]
    some += [word(10, MECHANISMS), word(10, MECHANISMS[:-1], chance.choice([25, 400])), word(12, b"r=", 90)]
    some += [b"v" + struct.pack(">III", chance.choice([12, 30]), 3 << 16, chance.choice([0, 1]))]
    return chance.choice(some)[: chance.randint(0, 30)]


def usual(chance: random.Random) -> bytes:
    """A word of a login, or nearly one."""
    names = b"".join(bytes(chance.choices(b"RESA-", k=chance.randint(1, 20))) + b"\0" for _ in range(3))
    some = [word(10, MECHANISMS)] * 4 + [word(10, names + b"\0"), word(10, MECHANISMS + beginning(chance))]
    some += [
        word(5, odd(chance, 4)),
        word(3),
        word(7),
        word(8, odd(chance, 40)),
        b"v" + struct.pack(">III", 12, 3 << 16, 0),
    ]
    return chance.choice([*some, b"E\0" + odd(chance, 3) + chance.choice([b"S", b"R", b"\0", b"r"]) + odd(chance, 12)])


def hidden(chance: random.Random, begun: bytes) -> bytes:
    """How often to hash, in what goes on with what libpq has begun to read, and looks as much as can be like a word."""
    often = word(chance.choice([11, 12]), OFTEN) + b"x" * chance.choice([0, 600])
    if often.startswith(begun) and chance.random() < 0.5:
        return often[len(begun) :]
    lacking = max(0, 13 - len(begun)) if begun else chance.randint(0, 5)
    lure = chance.choice([b"R\0\0\1", b"E\0\0\0", b"R\0\0\0", b"v\0\0\0", odd(chance, 4)])[:lacking].ljust(
        lacking, b"R"
    )
    return lure + chance.choice([b"", b"", usual(chance)]) + often


def is_fooled(seed: int) -> bool:
    chance = random.Random(seed)
    libpq, login = (
        Libpq(chance.choice([b"", beginning(chance), word(10, MECHANISMS) + beginning(chance)])),
        salted.Login(),
    )
    try:
        for _ in range(4):
            said = hidden(chance, libpq.unread) if libpq.asked and chance.random() < 0.7 else usual(chance)
            if login.listen(said):
                return False  # it would wait
            between = beginning(chance) if chance.random() < 0.5 else b""  # our look and libpq's
            if not libpq.read(said + between) or libpq.salted:
                return libpq.hashes
    except (salted.Unhashable, Over):
        return False
    return False


def nobody_is_fooled(seeds: int) -> None:
    assert not [seed for seed in range(seeds) if is_fooled(seed)]


@pytest.mark.timeout(120)
def test_whatever_libpq_has_begun_to_read_it_does_not_hash_for_minutes() -> None:
    nobody_is_fooled(20_000)
