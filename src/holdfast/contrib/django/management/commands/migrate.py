"""`manage.py migrate` that waits for its turn: of ten replicas that start at once, one migrates and nine find nothing to do."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError
from django.core.management.commands import migrate

from .....errors import HoldfastError, LeaseLost, NotAcquired
from ....django import urls_of_stores
from ....django.connections import locks


class Command(migrate.Command):
    def add_arguments(self, parser: Any) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--turn", type=float, metavar="SECONDS", help="wait at most so long for one's turn (for ever)"
        )
        parser.add_argument("--no-turn", action="store_true", help="do not wait: migrate without a lock")

    def handle(self, *arguments: object, **options: Any) -> None:
        wait, at_once = options.pop("turn", None), options.pop("no_turn", False)
        if at_once or options.get("plan") or options.get("check_unapplied"):
            super().handle(*arguments, **options)
            return
        name = f"django:migrate:{options['database']}"
        try:
            lease = locks[urls_of_stores.DEFAULT].lock(name, timeout=wait).acquire()
        except NotAcquired as error:
            raise CommandError(f"{error}", returncode=75) from None
        except HoldfastError as error:
            raise CommandError(f"{error}\n(--no-turn migrates without a lock)") from None
        try:
            with lease:
                super().handle(*arguments, **options)
        except LeaseLost as error:
            raise CommandError(f"the migration may not have been alone: {error}", returncode=76) from None
