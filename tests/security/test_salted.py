"""Whoever answers as PostgreSQL says how often the login is hashed: not so often that nothing else happens in this process."""

from __future__ import annotations

import base64
import contextlib
import ctypes
import hashlib
import hmac
import select
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from psycopg import pq

import holdfast
from holdfast import Unavailable
from holdfast.cli.fence import fence
from holdfast.cli.options import parse as words
from holdfast.doctor.postgresql import PostgresWard
from holdfast.stores.postgresql import salted
from holdfast.stores.postgresql.url import parse
from holdfast.testing import servers
from holdfast.verify.register import Place, Unanswered

from ..properties import examples, given, st
from .rogue import WORLDS, rogue
from .test_after_login import HELLO, said

WAYS = ["sslmode=disable", "sslmode=require"]
URL = "postgresql://me:pw@{}/db?gssencmode=disable&timeout=1"
# Some seconds' worth, so that a test that fails comes to an end; libpq does 2,147,483,647 as well.
OFTEN = [b"30000000", b" 30000000", b"+30000000", b"0x1c9c380", b"030000000000"]
MECHANISMS = said(b"R", struct.pack(">I", 10) + b"SCRAM-SHA-256\0\0")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificate")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run([*made, *files], check=True, capture_output=True, timeout=60)
    return folder


def salt(nonce: bytes, rounds: bytes) -> bytes:
    told = b"r=%bX,s=%b,i=%b" % (nonce, base64.b64encode(b"salt" * 4), rounds)
    return said(b"R", struct.pack(">I", 11) + told)


class Salting:
    """Asks for so many rounds. `cut`: of what it says of that, so many bytes come later."""

    def __init__(self, rounds: bytes, certificate: Path | None = None, *, cut: int = 0) -> None:
        self._rounds, self._cut = rounds, cut
        self.hashed = threading.Event()
        self._tls: ssl.SSLContext | None = None
        if certificate is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")

    def __call__(self, line: socket.socket) -> None:
        if self._tls is None:
            self._converse(line)
            return
        line.recv(65536)
        line.sendall(b"S")
        with self._tls.wrap_socket(line, server_side=True) as hidden:
            self._converse(hidden)

    def _converse(self, line: socket.socket) -> None:
        line.recv(65536)
        line.sendall(MECHANISMS)
        nonce = line.recv(65536).partition(b"r=")[2]
        whole = salt(nonce, self._rounds)
        line.sendall(whole[: len(whole) - self._cut])
        if self._cut:
            time.sleep(0.1)  # so that it is read by itself; a test that fails for this reads it whole, and passes
            line.sendall(whole[-self._cut :])
        if line.recv(65536):
            self.hashed.set()


class Hiding(Salting):
    """Says the salt in another way: as the last word, or in the end of a word that libpq does not read to its end."""

    def __init__(self, how: str) -> None:
        super().__init__(OFTEN[0])
        self._how = how

    def _converse(self, line: socket.socket) -> None:
        line.recv(65536)
        line.sendall(MECHANISMS)
        line.sendall(HIDDEN[self._how](salt(line.recv(65536).partition(b"r=")[2], self._rounds)))
        while line.recv(65536):
            pass


HIDDEN: dict[str, Callable[[bytes], bytes]] = {
    "as the last word": lambda salt: said(b"R", struct.pack(">I", 12) + salt[9:]),
    "behind another word": lambda salt: said(b"R", struct.pack(">I", 5) + b"md5!" + salt),
}


class Misleading(Salting):
    """Has libpq begin to read something that we do not see, and then says what goes on from there."""

    def __init__(self, how: str) -> None:
        super().__init__(OFTEN[0])
        self._how = how

    def _converse(self, line: socket.socket) -> None:
        line.recv(65536)
        unseen, seen, then = MISLEADING[self._how]
        if unseen:
            line.sendall(b"N" + unseen)  # no TLS here
            line.recv(65536)
        line.sendall(seen)
        nonce = line.recv(65536).partition(b"r=")[2]
        line.sendall(then(salt(nonce, self._rounds)) + bytes(512))
        while line.recv(65536):
            pass


MD5_BEGINS = b"R\0\0\0\x0c\0\0\0\x05"
# What is sent behind the no; what we look at first, and libpq answers; and what the salt is hidden in.
MISLEADING: dict[str, tuple[bytes, bytes, Callable[[bytes], bytes]]] = {
    "behind the no": (MECHANISMS + b"R", b"\0", lambda salt: salt[2:]),
    "in the end of the list, and then as an error": (
        b"",
        said(b"R", MECHANISMS[5:] + MD5_BEGINS),
        lambda salt: b"E\0\0\0" + salt,
    ),
    "in the end of the list, and then as the last word": (
        b"",
        said(b"R", MECHANISMS[5:] + MD5_BEGINS),
        lambda salt: b"R\0\0\1R\0\0\0\x0c\0\0\0\x05salt" + salt,
    ),
}


def misled(how: str, world: str) -> None:
    with rogue(Misleading(how), speaks_first=True) as address:
        started = time.monotonic()
        mode = "prefer" if MISLEADING[how][0] else "disable"
        assert "hung up" in str(WORLDS[world](f"{URL.format(address)}&sslmode={mode}"))
        assert time.monotonic() - started < 5


@pytest.mark.timeout(120)
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("how", MISLEADING)
def test_who_has_libpq_read_what_we_do_not_see_is_hung_up_on(how: str, world: str) -> None:
    misled(how, world)


def hung_up_in_a_word() -> None:
    def answer(line: socket.socket) -> None:
        line.recv(65536)
        line.sendall(MECHANISMS[:7])
        line.shutdown(socket.SHUT_WR)
        line.recv(65536)

    with rogue(answer, speaks_first=True) as address, pytest.raises(Unavailable, match="in the middle of a word"):
        PostgresWard(parse(f"{URL.format(address)}&sslmode=disable"))


@pytest.mark.skipif(not hasattr(select, "POLLRDHUP"), reason="elsewhere it is noticed at the deadline")
def test_who_hangs_up_in_the_middle_of_a_word_is_not_looked_at_all_the_time() -> None:
    hung_up_in_a_word()


def way(how: str, certificate: Path) -> tuple[str, Path | None]:
    return f"{URL}&{how}", certificate if how == "sslmode=require" else None


@pytest.mark.timeout(120)
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("rounds", OFTEN[:2])
def test_who_wants_the_login_hashed_for_minutes_is_hung_up_on(
    rounds: bytes, how: str, world: str, certificate: Path
) -> None:
    url, tls = way(how, certificate)
    server = Salting(rounds, tls)
    with rogue(server, speaks_first=True) as address:
        started = time.monotonic()
        error = WORLDS[world](url.format(address))
        assert time.monotonic() - started < 5
    assert isinstance(error, Unavailable)
    assert "hashed" in str(error)
    assert not server.hashed.is_set()


def hidden(how: str, world: str) -> None:
    with rogue(Hiding(how), speaks_first=True) as address:
        started = time.monotonic()
        assert "hung up" in str(WORLDS[world](URL.format(address) + "&sslmode=disable"))
        assert time.monotonic() - started < 5


@pytest.mark.timeout(120)
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("how", HIDDEN)
def test_who_hides_how_often_is_hung_up_on_as_well(how: str, world: str) -> None:
    hidden(how, world)


def pieces(how: str, tls: Path | None) -> None:
    server = Salting(OFTEN[0], tls, cut=4)
    with rogue(server, speaks_first=True) as address:
        started = time.monotonic()
        assert isinstance(WORLDS["threads"](f"{URL}&{how}".format(address)), Unavailable)
        assert time.monotonic() - started < 5
    assert not server.hashed.is_set()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("how", WAYS)
def test_who_says_so_in_pieces_is_not_read_in_pieces(how: str, certificate: Path) -> None:
    """Once libpq has the first piece, nobody sees of the second what it is one of."""
    pieces(how, way(how, certificate)[1])


@pytest.mark.timeout(60)
@pytest.mark.parametrize("how", WAYS)
def test_what_is_usual_is_hashed(how: str, certificate: Path) -> None:
    url, tls = way(how, certificate)
    server = Salting(b"4096", tls)
    with rogue(server, speaks_first=True) as address:
        WORLDS["threads"](url.format(address))
        assert server.hashed.wait(10)


def test_what_comes_slowly_is_waited_for() -> None:
    server = Salting(b"4096", cut=4)
    with rogue(server, speaks_first=True) as address:
        WORLDS["threads"](URL.format(address) + "&sslmode=disable")
        assert server.hashed.wait(10)


def by_the_old_lock(url: str) -> None:
    with holdfast.connect("memory://", also=f"advisory+{url}") as locks:
        locks.lock("42").acquire(timeout=0)


def by_triggers(url: str) -> None:
    fence(words(["fence", "install", "--table", "t", "--database", url, "--apply"]))


# Others than the store, which connect by themselves.
OTHERS: dict[str, Callable[[str], object]] = {
    "the doctor": lambda url: PostgresWard(parse(f"{url}&timeout=1")),
    "the old lock": by_the_old_lock,
    "triggers": by_triggers,
    "registers": lambda url: Place(url, "public").connect(),
}


def not_kept(whom: str) -> None:
    with rogue(Salting(OFTEN[0]), speaks_first=True) as address:
        started = time.monotonic()
        with pytest.raises((Unavailable, Unanswered), match="hashed"):
            OTHERS[whom](f"postgresql://me:pw@{address}/db?gssencmode=disable&sslmode=disable")
        assert time.monotonic() - started < 5


@pytest.mark.timeout(60)
@pytest.mark.parametrize("whom", OTHERS)
def test_nobody_else_is_kept_either(whom: str) -> None:
    not_kept(whom)


def verifier(password: bytes, rounds: int) -> str:
    """As PostgreSQL keeps it."""
    salt, digest = b"salt" * 4, hashlib.sha256
    key = hashlib.pbkdf2_hmac("sha256", password, salt, rounds)
    stored = digest(hmac.digest(key, b"Client Key", "sha256")).digest()
    server = hmac.digest(key, b"Server Key", "sha256")
    shown = [base64.b64encode(one).decode() for one in (salt, stored, server)]
    return f"SCRAM-SHA-256${rounds}:{shown[0]}${shown[1]}:{shown[2]}"


@pytest.mark.timeout(60)
def test_a_real_server_with_many_rounds_is_logged_in_to() -> None:
    """As many as are recommended for passwords."""
    with servers.start("postgresql") as server:
        rules = server.data / "pg_hba.conf"
        rules.write_text("host all careful all scram-sha-256\n" + rules.read_text())
        with psycopg.connect(server.url, autocommit=True) as admin:
            admin.execute(f"CREATE ROLE careful LOGIN PASSWORD '{verifier(b'pw', 600_000)}'".encode())
            admin.execute("GRANT CREATE ON DATABASE postgres TO careful")
            admin.execute("SELECT pg_reload_conf()")
        place = server.url.partition("@")[2]
        with holdfast.connect(f"postgresql://careful:pw@{place}?timeout=20") as locks, locks.lock("x"):
            pass


# ---- what is said, without a server


def missing(said: bytes, after: bytes = b"") -> int:
    login = salted.Login()
    assert login.listen(after) == 0
    return login.listen(said)


MD5 = said(b"R", struct.pack(">I", 5) + b"salt")
SALT = salt(b"nonce", b"4096")
LESS = said(b"v", struct.pack(">II", 3 << 16, 1) + b"_pq_.x\0")  # that version, and not this option
KERBEROS = said(b"R", struct.pack(">I", 7))
FAILED = said(b"E", b"SFATAL\0C28P01\0\0")


@pytest.mark.parametrize("rounds", OFTEN)
def test_a_number_is_one_in_plain_digits(rounds: bytes) -> None:
    with pytest.raises(salted.Unhashable, match="hashed"):
        missing(salt(b"nonce", rounds), MECHANISMS)


@pytest.mark.parametrize("rounds", [b"1", b"4096", b"600000", b"1000000"])
def test_numbers_that_are_hashed(rounds: bytes) -> None:
    assert missing(salt(b"nonce", rounds), MECHANISMS) == 0


@examples(200)
@given(before=st.sampled_from([MECHANISMS, LESS + MECHANISMS]), cut=st.integers(0, 200))
def test_until_it_is_whole_something_is_missing(before: bytes, cut: int) -> None:
    whole = before + salt(b"nonce", b"2000000000")
    piece = whole[:cut]
    if len(piece) == len(whole):
        with pytest.raises(salted.Unhashable):
            missing(piece)
    elif len(piece) in (0, len(before), before.find(MECHANISMS)):
        assert missing(piece) == 0
    else:
        assert 0 < missing(piece) <= len(whole) - len(piece)


@examples(300)
@given(said=st.binary(max_size=200), letter=st.sampled_from([b"", b"R\0\0\0", b"E\0\0\0", b"v\0\0\0"]))
def test_whatever_is_said_it_is_looked_at(said: bytes, letter: bytes) -> None:
    with contextlib.suppress(salted.Unhashable):
        assert 0 <= missing(letter + said) <= 2000


LOGINS = {
    "no password": [HELLO],
    "MD5": [MD5, HELLO],
    "SCRAM": [MECHANISMS, SALT],
    "SCRAM, and an older version": [LESS + MECHANISMS, SALT],
    "Kerberos": [KERBEROS, said(b"R", struct.pack(">I", 8) + b"`token") + HELLO],
    "refused": [FAILED],
    "refused at last": [MD5, FAILED],
    "refused after the first word": [MECHANISMS, FAILED],
}


@pytest.mark.parametrize("login", LOGINS)
def test_what_belongs_to_a_login_is_heard_once_it_is_whole(login: str) -> None:
    for number, word in enumerate(LOGINS[login]):
        for length in range(1, len(word)):
            heard = salted.Login()
            for before in LOGINS[login][:number]:
                assert heard.listen(before) == 0
            assert 0 <= heard.listen(word[:length]) <= len(word) - length


@pytest.mark.parametrize("then", [MD5, MECHANISMS, LESS, KERBEROS, SALT[1:], SALT[9:], b"N" + SALT[1:]])
@pytest.mark.parametrize("first", [MD5, MECHANISMS, LESS + MECHANISMS])
def test_who_was_answered_does_not_ask_again(first: bytes, then: bytes) -> None:
    with pytest.raises(salted.Unhashable):
        missing(then, first)


def test_nor_hides_something_behind_what_libpq_reads_only_to_its_middle() -> None:
    for body in (MECHANISMS[5:] + b"R\0", MD5[5:] + b"R\0", HELLO[5:9] + b"R\0", KERBEROS[5:] + b"R\0"):
        with pytest.raises(salted.Unhashable):
            missing(said(b"R", body))
    for names in (b"", b"_pq_.x\0R\0", b"_pq_.x\0\0", b"\0"):
        with pytest.raises(salted.Unhashable):
            missing(said(b"v", struct.pack(">II", 3 << 16, 1) + names))


# What libpq may have begun to read without our seeing it, how much of the next word goes with that, and what that begins with.
LURES = [b"R\0\0\0", b"R\0\0\1", b"E\0\0\0", b"E\0\0\1", b"v\0\0\0", b"v\0\0\1", b"Esor", b"R\0\0R", b"E\0\0R"]


@pytest.mark.parametrize("last", [MECHANISMS, LESS, KERBEROS, b""])
def test_the_rest_of_a_word_is_none(last: bytes) -> None:
    """Between our look and libpq's the first bytes may have come; then libpq takes them with what we see next."""
    often = salt(b"nonce", OFTEN[0])
    hidden = [often, b"R" + struct.pack(">II", 8 + len(often) - 9, 12) + often[9:]]
    hidden += [MD5 + often, MD5 + MD5 + often]
    for stream in hidden:
        for cut in range(1, stream.index(b"nonce") + 1):
            # Of MD5's salt, which may be anything, so many bytes are to come.
            free = len(MD5) - cut if stream.startswith(MD5) and len(MD5_BEGINS) <= cut < len(MD5) else 0
            for lure in LURES if free else [b""]:
                with pytest.raises(salted.Unhashable):
                    missing(lure[:free] + stream[cut + free :] + bytes(2000), last)


def test_another_host_is_met_anew() -> None:
    login = salted.Login()
    for host in ("one", "another"):
        login._meet(host)
        assert login.listen(MECHANISMS) == 0


def test_after_the_login_nothing_is_looked_for() -> None:
    assert missing(HELLO + b"R\0\0") == 0


def test_what_psycopg_has_loaded_can_be_asked() -> None:
    """A private part: libpq, and its OpenSSL, behind psycopg's own module."""
    library = salted._library()
    assert isinstance(library, ctypes.CDLL)
    assert library.PQlibVersion() == pq.version()
