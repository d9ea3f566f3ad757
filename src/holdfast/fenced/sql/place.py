"""Where a mark is kept: in the fence table, or in a column of the very row that it guards."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import NamedTuple, TypeGuard

from ...databases.statements import MYSQL, POSTGRESQL, Statement, bind, identifier, load, plain, table_name, table_parts
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
            if dialect == MYSQL:
                *schema, values["name"] = table_parts(row.table)
                values["schema"] = schema[-1] if schema else None
            elif dialect == POSTGRESQL:
                values["relation"] = plain(slots["table"])
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
        return self.row is None and outcome.last_id == self.mark.token

    def confirmed(self, found: tuple[object, ...] | None) -> bool:
        """A trigger on the table makes MySQL forget the last insert id, and of the user's own rows it tells nothing. The row is
        locked by now: look at it."""
        if self._dialect != MYSQL or found is None or not _whole(found[0]) or found[0] != self.mark.token:
            return False
        return self.row is None or found[2:] == (1, None)

    def error(self, found: tuple[object, ...] | None) -> HoldfastError:
        """Why it was not accepted, by what `look` has found."""
        if self.row is not None and found is not None:
            return self._error_of_row(self.row, *found)
        if found is None:
            return Misuse(
                f"the mark of {self.mark.resource!r} vanished while it was read: who deletes from holdfast_fences?"
            )
        return refusal(self.mark, int(str(found[0])), int(str(found[1])) / 1e6)

    def _error_of_row(self, row: Row, seen: object, since: object, rows: object, flaw: object) -> HoldfastError:
        if int(str(rows)) > 1:
            return Misuse(
                f"{row.table} has {rows} rows {dict(row.key)!r:.200}, and a mark belongs to one: give the whole of a unique key"
            )
        if not int(str(rows)):
            return Misuse(f"{row.table} has no row {dict(row.key)!r:.200}: insert it first, with {row.column} NULL")
        if flaw is not None or not _whole(seen) or seen <= self.mark.token:
            return Misuse(
                f"{row.table} cannot keep the token {self.mark.token} in {row.column} (found: {flaw or seen}): a BIGINT is "
                "wanted, in a table with transactions"
            )
        return refusal(self.mark, int(seen))


def _whole(number: object) -> TypeGuard[int | Decimal]:
    return isinstance(number, int) or (
        isinstance(number, Decimal) and number.is_finite() and number == number.to_integral_value()
    )
