"""A migration operation: what the stores create in the database, for those whose application may not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.db.migrations.operations.base import Operation

from . import urls_of_stores


class CreateStores(Operation):
    """The tables of every store of settings.HOLDFAST that is in the database which is migrated. Doing it again does no harm.

    It is not undone: others may have locks there.
    """

    reduces_to_sql = True
    reversible = True

    def state_forwards(self, app_label: str, state: Any) -> None:
        return

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        from django.db import router

        if not router.allow_migrate(schema_editor.connection.alias, app_label):
            return
        for statement in _statements(schema_editor.connection):
            schema_editor.execute(statement, params=None)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        return

    def describe(self) -> str:
        return "Create what the locks need in this database"


def _statements(connection: Any) -> Iterator[str]:
    for alias in urls_of_stores.aliases():
        if urls_of_stores.database_of(alias) != connection.alias:
            continue
        if connection.vendor == "postgresql":
            from ...stores.postgresql import schema

            yield schema(urls_of_stores.url(alias, testing=False).plain)
        elif connection.vendor == "mysql":
            from ...stores.mysql import definitions

            yield definitions.SQL_MODE
            yield from definitions.tables()
            for name, body in definitions.procedures():
                yield f"DROP PROCEDURE IF EXISTS {name}"
                yield body
            yield definitions.WHOLE
