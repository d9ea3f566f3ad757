"""Django migration operations: `CreateFences()` and `InstallFence("app_order", "fence")` in a migration's `operations`."""

from __future__ import annotations

from typing import Any

from django.db.migrations.operations.base import Operation

from ...databases.statements import DIALECTS
from ...errors import Misuse
from ..sql.place import texts
from . import Table, install, remove


def _dialect(schema_editor: Any) -> str:
    vendor: str = schema_editor.connection.vendor
    if vendor not in DIALECTS:
        raise Misuse(f"fences are for {', '.join(DIALECTS)}, not for {vendor}")
    return vendor


class _Statements(Operation):  # type: ignore[misc]  # Django has no types
    """Statements for the database; the models are not concerned. Whether they run here is the router's business."""

    reduces_to_sql = True
    reversible = True

    def state_forwards(self, app_label: str, state: Any) -> None:
        return

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        self._run(app_label, schema_editor, self._forwards(_dialect(schema_editor)))

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        self._run(app_label, schema_editor, self._backwards(_dialect(schema_editor)))

    def _run(self, app_label: str, schema_editor: Any, statements: list[str]) -> None:
        from django.db import router

        if router.allow_migrate(schema_editor.connection.alias, app_label):
            for statement in statements:
                schema_editor.execute(statement, params=None)

    def _forwards(self, dialect: str) -> list[str]:
        raise NotImplementedError

    def _backwards(self, dialect: str) -> list[str]:
        raise NotImplementedError


class InstallFence(_Statements):
    """Refuse a lower token in this column of this table (its name in the database) from now on."""

    def __init__(self, table: Table, column: str = "fence") -> None:
        self.table = table
        self.column = column

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        return type(self).__name__, [self.table, self.column], {}

    def describe(self) -> str:
        return f"Refuse stale tokens in {self.table}.{self.column}"

    def _forwards(self, dialect: str) -> list[str]:
        return install(dialect, self.table, self.column)

    def _backwards(self, dialect: str) -> list[str]:
        return remove(dialect, self.table, self.column)


class CreateFences(_Statements):
    """The table `holdfast_fences` of fenced transactions."""

    def describe(self) -> str:
        return "Create the table holdfast_fences"

    def _forwards(self, dialect: str) -> list[str]:
        return [texts(dialect)["create"]]

    def _backwards(self, dialect: str) -> list[str]:
        return [texts(dialect)["drop"]]
