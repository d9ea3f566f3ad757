"""What Django is told of us."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class HoldfastConfig(AppConfig):
    name = "holdfast.contrib.django"
    label = "holdfast"
    verbose_name = "Locks"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import checks  # noqa: F401  # they register themselves

        post_migrate.connect(_fences_for_tests, sender=self)


def _fences_for_tests(using: str, **_: Any) -> None:
    """Many a test database is made without migrations (TEST's MIGRATE, or --nomigrations): it needs its fences all the same."""
    from django.db import connections, router

    from ...databases.statements import DIALECTS
    from ...fenced import create_table
    from .urls_of_stores import under_test

    connection = connections[using]
    wanted = under_test() and connection.vendor in DIALECTS and router.allow_migrate(using, "holdfast")
    if wanted and "holdfast_fences" not in connection.introspection.table_names():
        create_table(connection)
