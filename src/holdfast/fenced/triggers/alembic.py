"""Alembic operations: `from holdfast.fenced.triggers import alembic` in env.py or in the migration, then

def upgrade():
    op.create_fences()                          # the table holdfast_fences
    op.install_fence("orders", "fence")         # the trigger
"""

from __future__ import annotations

from typing import Any

from alembic.operations import MigrateOperation, Operations

from ...databases.statements import DIALECTS, MYSQL
from ...errors import Misuse
from ..sql.place import texts
from . import Table, install, remove


def _dialect(operations: Operations) -> str:
    name = operations.get_context().dialect.name
    dialect = MYSQL if name == "mariadb" else name
    if dialect not in DIALECTS:
        raise Misuse(f"fences are for {', '.join(DIALECTS)}, not for {name}")
    return dialect


class _Fence(MigrateOperation):
    def __init__(self, table: Table, column: str, add_column: bool = False) -> None:
        self.table = table
        self.column = column
        self.add_column = add_column


@Operations.register_operation("install_fence")
class InstallFence(_Fence):
    @classmethod
    def install_fence(
        cls, operations: Operations, table: Table, column: str = "fence", *, add_column: bool = False
    ) -> Any:
        """Refuse a lower token in this column from now on."""
        return operations.invoke(cls(table, column, add_column))

    def reverse(self) -> RemoveFence:
        return RemoveFence(self.table, self.column)


@Operations.register_operation("remove_fence")
class RemoveFence(_Fence):
    @classmethod
    def remove_fence(cls, operations: Operations, table: Table, column: str = "fence") -> Any:
        """Remove the trigger; the column stays."""
        return operations.invoke(cls(table, column))

    def reverse(self) -> InstallFence:
        return InstallFence(self.table, self.column)


@Operations.register_operation("create_fences")
class CreateFences(MigrateOperation):
    @classmethod
    def create_fences(cls, operations: Operations) -> Any:
        """The table `holdfast_fences` of fenced transactions."""
        return operations.invoke(cls())

    def reverse(self) -> DropFences:
        return DropFences()


@Operations.register_operation("drop_fences")
class DropFences(MigrateOperation):
    @classmethod
    def drop_fences(cls, operations: Operations) -> Any:
        return operations.invoke(cls())

    def reverse(self) -> CreateFences:
        return CreateFences()


def _run(operations: Operations, statements: list[str]) -> None:
    for statement in statements:
        operations.execute(statement.replace(":", "\\:"))  # a plain string is read as text(), where a colon binds


@Operations.implementation_for(InstallFence)
def _install(operations: Operations, operation: InstallFence) -> None:
    _run(
        operations,
        install(_dialect(operations), operation.table, operation.column, add_column=operation.add_column),
    )


@Operations.implementation_for(RemoveFence)
def _remove(operations: Operations, operation: RemoveFence) -> None:
    _run(operations, remove(_dialect(operations), operation.table, operation.column))


@Operations.implementation_for(CreateFences)
def _create(operations: Operations, operation: CreateFences) -> None:
    _run(operations, [texts(_dialect(operations))["create"]])


@Operations.implementation_for(DropFences)
def _drop(operations: Operations, operation: DropFences) -> None:
    _run(operations, [texts(_dialect(operations))["drop"]])
