"""What etcd answers: of a message only the fields that somebody reads are read; and what people should read instead of a no."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...errors import HoldfastError, Misuse, Unavailable
from .channel import (
    FAILED_PRECONDITION,
    INVALID_ARGUMENT,
    NOT_FOUND,
    PERMISSION_DENIED,
    RESOURCE_EXHAUSTED,
    UNAUTHENTICATED,
    Status,
)


class Garbled(Exception):
    """That is no answer of etcd's."""


_DEEPEST = 8  # a transaction in a gathering in a transaction: more than we ever ask


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field by field. Fixed-width fields, which etcd does not use here, are skipped."""
    at, end = 0, len(message)
    while at < end:
        tag = message[at]
        at += 1
        if tag > 127:
            tag, at = _varint(message, at - 1)
        kind = tag & 7
        if kind == 0 or kind == 2:
            value = message[at] if at < end else 128  # nearly all are short, and their numbers a byte
            at += 1
            if value > 127:
                value, at = _varint(message, at - 1)
            if kind == 0:
                yield tag >> 3, value
                continue
            if value > end - at:
                raise Garbled("a field is longer than its message")
            yield tag >> 3, message[at : at + value]
            at += value
        else:
            at += 8 if kind == 1 else 4


def _varint(message: bytes, at: int) -> tuple[int, int]:
    try:
        value = message[at]
        at += 1
        if value < 128:
            return value, at
        value &= 127
        for shift in range(7, 70, 7):
            more = message[at]
            at += 1
            value |= (more & 127) << shift
            if more < 128:
                return value, at
    except IndexError:
        raise Garbled("a message ends within a number") from None
    raise Garbled("a number without end")


class Header(NamedTuple):
    revision: int = 0
    term: int = 0


class KeyValue(NamedTuple):
    key: bytes = b""
    created: int = 0  # revisions
    modified: int = 0
    value: bytes = b""
    lease: int = 0


class Ranged(NamedTuple):
    found: tuple[KeyValue, ...] = ()
    more: bool = False


class Done(NamedTuple):
    """A transaction's outcome. `answers`: a Ranged, the number of keys deleted, a Done, or None for a put."""

    succeeded: bool
    answers: tuple[Ranged | int | Done | None, ...]
    header: Header

    def ranged(self, index: int) -> tuple[KeyValue, ...]:
        answer = self.answers[index] if 0 <= index < len(self.answers) else None
        if not isinstance(answer, Ranged):
            raise Garbled("an answer is not of the kind that was asked for")
        return answer.found


class Leased(NamedTuple):
    """The answer to a grant, a keep-alive or a question for the time to live. A ttl of 0 or less: there is no such lease."""

    lease: int
    ttl: int
    header: Header
    keys: tuple[bytes, ...] = ()


class Heard(NamedTuple):
    """What a watch is told."""

    watch_id: int
    revision: int
    created: bool
    canceled: bool
    events: bool


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise Garbled("a number, where there should be text")
    return value


def _int(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise Garbled("text, where there should be a number")
    return value - 2**64 if value >= 2**63 else value


def _header(message: bytes) -> Header:
    found = dict(fields(message))
    return Header(_int(found.get(3, 0)), _int(found.get(4, 0)))


def _key_value(message: bytes) -> KeyValue:
    got = dict(fields(message))
    return KeyValue(
        _bytes(got.get(1, b"")),
        _int(got.get(2, 0)),
        _int(got.get(3, 0)),
        _bytes(got.get(5, b"")),
        _int(got.get(6, 0)),
    )


def read_range(message: bytes) -> Ranged:
    found = []
    more = False
    for field, value in fields(message):
        if field == 2:
            found.append(_key_value(_bytes(value)))
        elif field == 3:
            more = bool(value)
    return Ranged(tuple(found), more)


def read_txn(message: bytes, deep: int = 0) -> Done:
    if deep > _DEEPEST:
        raise Garbled("transactions within transactions")
    header, succeeded = Header(), False
    answers: list[Ranged | int | Done | None] = []
    read: dict[int | bytes, Ranged | int | Done | None] = {}  # of many that entered together, all are answered alike
    for field, value in fields(message):
        if field == 1:
            header = _header(_bytes(value))
        elif field == 2:
            succeeded = bool(value)
        else:
            if value not in read:
                read[value] = _answer(_bytes(value), deep)
            answers.append(read[value])
    return Done(succeeded, tuple(answers), header)


def revised(done: Done) -> Done:
    """Of every transaction etcd says at which revision of its log it was: that is what tokens are."""
    if done.header.revision < 1:
        raise Garbled("a transaction without a revision")
    return done


def _answer(message: bytes, deep: int) -> Ranged | int | Done | None:
    for field, value in fields(message):
        if field == 1:
            return read_range(_bytes(value))
        if field == 3:
            return _int(dict(fields(_bytes(value))).get(2, 0))
        if field == 4:
            return read_txn(_bytes(value), deep + 1)
    return None


def read_lease(message: bytes, *, keys: bool = False) -> Leased:
    told = list(fields(message))
    found = dict(told)
    attached = tuple(_bytes(value) for field, value in told if field == 5) if keys else ()
    return Leased(_int(found.get(2, 0)), _int(found.get(3, 0)), _header(_bytes(found.get(1, b""))), attached)


def read_watch(message: bytes) -> Heard:
    found = dict(fields(message))
    return Heard(
        watch_id=_int(found.get(2, 0)),
        revision=_header(_bytes(found.get(1, b""))).revision,
        created=bool(found.get(3)),
        canceled=bool(found.get(4)),
        events=11 in found,
    )


def read_login(message: bytes) -> bytes:
    return _bytes(dict(fields(message)).get(2, b""))


# ---- when it does not do as asked


class Refused(Exception):
    """etcd answered, and the answer is no. Nothing was changed."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.code, self.message = status

    @property
    def is_login_stale(self) -> bool:
        """Its token ran out, or users and roles were changed since: to log in again helps."""
        return self.code == UNAUTHENTICATED or "revision of auth store is old" in self.message

    @property
    def is_lease_gone(self) -> bool:
        return self.code == NOT_FOUND and "lease not found" in self.message


_ETCDS_OWN = {INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, UNAUTHENTICATED}


def failure(status: Status, where: str) -> Exception:
    """A refusal by etcd itself; or Unavailable, for no leader, no quorum, no time."""
    if status.code in _ETCDS_OWN:
        return Refused(status)
    return Unavailable(f"etcd at {where} could not answer: {status.message or f'gRPC status {status.code}'}")


def explained(refused: Refused, where: str, prefix: str) -> HoldfastError:
    said = refused.message
    if refused.code == PERMISSION_DENIED:
        return Misuse(
            f"etcd at {where} does not let this user touch keys under {prefix!r} ({said}): see docs/etcd.md, roles"
        )
    if "user name is empty" in said:
        return Misuse(f"etcd at {where} wants a login: write it into the URL, as in etcd://user:password@host")
    if "authentication failed" in said or "authentication is not enabled" in said:
        return Misuse(f"etcd at {where} refused the login of the URL: {said}")
    if refused.code == RESOURCE_EXHAUSTED and "space exceeded" in said:
        return Unavailable(
            f"etcd at {where} is full and refuses all writes ({said}): compact and defragment it, raise its quota, then "
            "`etcdctl alarm disarm`"
        )
    return Unavailable(f"etcd at {where} refused: {said or f'gRPC status {refused.code}'}")


def is_denied(error: Exception) -> bool:
    """Of an explained one: etcd says that this user has no right to do it."""
    return isinstance(error.__cause__, Refused) and error.__cause__.code == PERMISSION_DENIED


def garbled(error: Exception, where: str) -> Unavailable:
    return Unavailable(f"what answers at {where} does not speak as etcd does: {error}")
