"""A job for `manage.py once`."""

import os
import sys
from typing import Any

from django.core.management.base import BaseCommand


class Command(BaseCommand):
    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--code", type=int, default=0)

    def handle(self, *_: object, **options: Any) -> None:
        self.stdout.write(f"working under {os.environ['HOLDFAST_NAME']} {int(os.environ['HOLDFAST_TOKEN']) > 0}")
        self.stdout.flush()
        sys.exit(options["code"])
