"""Where a mark is kept: in the fence table, or in a column of the very row that it guards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...databases.statements import MYSQL, Statement, bind, identifier, load, table_name
from ...databases.wire import Outcome
from ...errors import HoldfastError, Misuse
from ..mark import Mark, refusal


def texts(dialect: str) -> dict[str, str]:
    return load(dialect, __package__ or "")


class Row(NamedTuple):
    """A row of the user's own table that carries its mark in a column: `Row("orders", {"id": 42})`."""

    table: str | tuple[str, ...]
    key: Mapping[str, object]
    column: str = "fence"

    def checked(self) -> Row:
        if not isinstance(self.key, Mapping) or not self.key:
            raise Misuse(f"a row is named by its key, such as Row('orders', {{'id': 42}}), not by {self.key!r:.80}")
        return self


class Place:
    """One mark to be set, in one dialect, in the words of one driver."""

    def __init__(self, mark: Mark, row: Row | None, dialect: str, style: str) -> None:
        self.mark = mark
        self.row = row
        self._dialect = dialect
        values: dict[str, object] = {"token": mark.token}
        slots: dict[str, str] = {}
        if row is None:
            values["resource"] = mark.resource
            if dialect == MYSQL:
                values["resource_hex"] = mark.resource.encode().hex()
            self._names = "seal", "look"
        else:
            keys = []
            for number, (column, value) in enumerate(row.key.items()):
                values[f"key{number}"] = value
                keys.append(f"{identifier(dialect, column)} = :key{number}")
            slots = {"table": table_name(dialect, row.table), "column": identifier(dialect, row.column)}
            slots["key"] = " AND ".join(keys)
            self._names = "seal_row", "look_row"
        self._style, self._values, self._slots = style, values, slots
        self.seal = self._statement(self._names[0])

    def _statement(self, name: str) -> Statement:
        return bind(texts(self._dialect)[name], self._style, self._values, **self._slots)

    @property
    def look(self) -> Statement:
        """Needed only to say why."""
        return self._statement(self._names[1])

    def accepted(self, outcome: Outcome) -> bool:
        if self._dialect != MYSQL:
            return outcome.rows == 1
        return 0 < outcome.last_id <= self.mark.token and (self.row is None or outcome.rows <= 1)

    def confirmed(self, found: tuple[object, ...] | None) -> bool:
        """A trigger on the table makes MySQL forget the last insert id. The row is locked by now: look at it."""
        return self._dialect == MYSQL and found is not None and found[0] == self.mark.token and found[2:] in ((), (1,))

    def error(self, found: tuple[object, ...] | None) -> HoldfastError:
        """Why it was not accepted, by what `look` has found."""
        if found is not None and self.row is not None and int(str(found[2])) > 1:
            return Misuse(
                f"{self.row.table} has {found[2]} rows {dict(self.row.key)!r:.200}, and a mark belongs to one: give the whole of "
                "a unique key"
            )
        if found is None or found[0] is None:
            if self.row is not None:
                return Misuse(
                    f"{self.row.table} has no row {dict(self.row.key)!r:.200}: insert it first, with {self.row.column} NULL"
                )
            return Misuse(
                f"the mark of {self.mark.resource!r} vanished while it was read: who deletes from holdfast_fences?"
            )
        since = int(str(found[1])) / 1e6 if len(found) > 1 and found[1] is not None else None
        return refusal(self.mark, int(str(found[0])), since)
