"""One row of the user's own table: how it is named, read and written, in the words of one driver."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from ...databases.statements import MYSQL, NAMED, Statement, bind, identifier, load, table_name
from ...errors import Misuse

Table = str | tuple[str, ...]
Key = Mapping[str, object] | int | str

_TEXTS = load("", __package__ or "", "statements.sql")


class Row:
    """Refuses at once what can be no row."""

    __slots__ = ("columns", "dialect", "key", "style", "table", "version")

    def __init__(self, table: Table, key: Key, version: str, dialect: str, style: str) -> None:
        if not isinstance(key, Mapping):
            key = {"id": key}
        if not key:
            raise Misuse(f"a row of {table!r} is named by its key, such as {{'id': 42}}, not by {key!r}")
        for column, value in key.items():
            if value is None:
                raise Misuse(f"the key column {column!r} of {table!r} is None, and nothing is ever equal to NULL")
        self.table, self.key, self.version = table, key, version
        self.dialect, self.style = dialect, style
        self.columns = tuple(key)

    def __str__(self) -> str:
        name = ".".join(self.table) if isinstance(self.table, tuple) else self.table
        return f"{name} {dict(self.key)!r:.200}"

    def order(self) -> tuple[str, str]:
        """One order for all, so that two transactions over the same rows cannot wait for each other."""
        return str(self.table), repr(sorted((name, repr(value)) for name, value in self.key.items()))

    def read(self) -> Statement:
        text, names = _read(self.dialect, self.style, self.table, self.columns)
        return _statement(self.style, text, names, tuple(self.key.values()))

    def write(self, changes: Mapping[str, object], seen: int) -> Statement:
        if self.version in changes:
            raise Misuse(f"the column {self.version!r} of {self} is the version, which rises by itself: do not set it")
        text, names = _write(self.dialect, self.style, self.table, self.columns, self.version, tuple(changes))
        return _statement(self.style, text, names, (*changes.values(), *self.key.values(), seen))

    def swap(self, changes: str, where: str, values: Mapping[str, object]) -> Statement:
        keys = {f"key{number}": value for number, value in enumerate(self.key.values())}
        if clash := keys.keys() & values.keys():
            raise Misuse(f"the names {', '.join(sorted(clash))} are taken: call the values something else")
        slots = {"table": table_name(self.dialect, self.table), "key": _key(self.dialect, self.columns)}
        slots["column"] = identifier(self.dialect, self.columns[0])
        name = "swap_mysql" if self.dialect == MYSQL else "swap"
        try:
            return bind(_TEXTS[name], self.style, {**keys, **values}, **slots, changes=changes, where=where)
        except KeyError as error:
            raise Misuse(
                f"no value was given for :{error.args[0]} (a colon that is none of ours is written \\:)"
            ) from None


def _statement(style: str, text: str, names: tuple[str, ...], values: tuple[object, ...]) -> Statement:
    if style == NAMED:
        return Statement(text, (), dict(zip(names, values, strict=True)))
    return Statement(text, values, {})


def _key(dialect: str, columns: tuple[str, ...]) -> str:
    return " AND ".join(f"{identifier(dialect, column)} = :key{number}" for number, column in enumerate(columns))


# A program updates few kinds of rows, and each of them often. Every place stands once, in the order of `names`.


@lru_cache(maxsize=512)
def _read(dialect: str, style: str, table: Table, columns: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    names = tuple(f"key{number}" for number in range(len(columns)))
    slots = {"table": table_name(dialect, table), "key": _key(dialect, columns)}
    return bind(_TEXTS["read"], style, dict.fromkeys(names), **slots).text, names


@lru_cache(maxsize=512)
def _write(
    dialect: str, style: str, table: Table, columns: tuple[str, ...], version: str, changed: tuple[str, ...]
) -> tuple[str, tuple[str, ...]]:
    names = tuple(f"value{number}" for number in range(len(changed)))
    changes = "".join(f"{identifier(dialect, column)} = :{name}, " for column, name in zip(changed, names, strict=True))
    names = (*names, *(f"key{number}" for number in range(len(columns))), "seen")
    slots = {"table": table_name(dialect, table), "key": _key(dialect, columns), "changes": changes}
    slots["version"] = identifier(dialect, version)
    return bind(_TEXTS["write"], style, dict.fromkeys(names), **slots).text, names
