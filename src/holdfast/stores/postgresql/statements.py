"""What is asked, and how its parameters are packed: in binary, so that no encoding, quoting or time zone has a say."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib.resources import files
from typing import NamedTuple

from ...claim import Claim

Params = Sequence[bytes]
Row = tuple[bytes, ...]

TRUE = b"\1"  # as the server packs it
long, whole = struct.Struct(">q").pack, struct.Struct(">i").pack
_OIDS = {"bytea": 17, "bigint": 20, "integer": 23, "bytea[]": 1001, "bigint[]": 1016, "integer[]": 1007}
_SECTION = re.compile(r"^-- (\w+) \(([^)]*)\)\n(.*?)(?=\n\n|\Z)", re.DOTALL | re.MULTILINE)


read: Callable[[bytes], int] = partial(int.from_bytes, byteorder="big", signed=True)


class Once(tuple[bytes, ...]):
    """Parameters of what has another answer the second time. `twice`: the first asking may have arrived, too."""

    twice = False


class Statement(NamedTuple):
    """One thing that can be asked."""

    name: bytes  # under which the server knows it; empty: it is never prepared
    sql: bytes
    types: tuple[str, ...]
    oids: tuple[int, ...]
    many: Statement | None = None  # the same, for an array of each parameter
    repeats: bool = True  # harmless to ask again when the answer was lost

    def preparing(self) -> str:
        return f"PREPARE {self.name.decode()} ({', '.join(self.types)}) AS {self.sql.decode()};"


def load(file: str, schema: str) -> dict[str, Statement]:
    text = files(__package__).joinpath(file).read_text(encoding="utf-8")
    found: dict[str, Statement] = {}
    for name, types, sql in _SECTION.findall(text.replace('"holdfast"', f'"{schema}"')):
        kinds = tuple(types.split(", "))
        oids = tuple(_OIDS[kind] for kind in kinds)
        found[name] = Statement(f"holdfast_{name}".encode(), sql.strip().encode(), kinds, oids)
    return found


PING = Statement(b"holdfast_ping", b"SELECT $1", ("bigint",), (_OIDS["bigint"],))


class _Common:
    """What both modes are asked."""

    def __init__(self, found: dict[str, Statement]) -> None:
        self.evict = found["evict"]._replace(repeats=False)
        self.sweep = found["sweep"]
        self.inspect = found["inspect"]
        self.names = found["names"]
        self.preparing = " ".join(statement.preparing() for statement in found.values())


class Statements(_Common):
    """All of the lease table, for one schema."""

    def __init__(self, schema: str) -> None:
        found = load("statements.sql", schema)
        # A schema that an older holdfast has made has no such function; everything else works there.
        self.wanted = found.pop("wanted")._replace(name=b"")
        super().__init__(found)
        self.claim = found["claim"]._replace(many=found["claim_many"])
        self.release = found["release"]._replace(many=found["release_many"])
        self.renew = found["renew"]
        self.watch = found["watch"]


class SessionStatements(_Common):
    """All of session mode, for one schema."""

    def __init__(self, schema: str) -> None:
        found = {**load("session.sql", schema), "ping": PING}
        super().__init__(found)
        self.attempt = found["try"]
        self.wait = found["wait"]
        self.downgrade = found["downgrade"]
        self.leave = found["leave"]
        self.patience = found["patience"]
        self.ping = PING
        self.cancel = found["cancel"]
        self.present = found["present"]
        self.end = found["end"]


def array(type_: str, values: Sequence[bytes]) -> bytes:
    """PostgreSQL's binary form of an array without NULLs."""
    head = struct.pack(">iiiii", 1, 0, _OIDS[type_], len(values), 1)
    return head + b"".join([part for value in values for part in (whole(len(value)), value)])


def transposed(statement: Statement, asked: Sequence[Params]) -> list[bytes]:
    """The parameters of many as the arrays of one."""
    return [
        array(type_.removesuffix("[]"), column)
        for type_, column in zip(statement.types, zip(*asked, strict=True), strict=True)
    ]


def claim_params(claim: Claim, flags: int, ear: int, seat: int) -> Params:
    name, holder, owner, ttl, units, capacity, fair, _, note = claim
    return (
        name.encode(), holder.encode(), owner.encode("utf-8", "replace"), note.encode(), long(int(ttl * 1_000_000)),
        whole(units), whole(capacity), whole(flags | (1 if fair else 0)), long(ear), long(seat),
    )  # fmt: skip


def renew_params(asked: Iterable[tuple[str, str, int, float]], flags: int) -> Params:
    """Of (name, holder, token, ttl)."""
    names, holders, tokens, ttls = zip(*asked, strict=True)
    return (
        array("bytea", [name.encode() for name in names]),
        array("bytea", [holder.encode() for holder in holders]),
        array("bigint", [long(token) for token in tokens]),
        array("bigint", [long(int(ttl * 1_000_000)) for ttl in ttls]),
        whole(flags),
    )
