"""`manage.py once [options] NAME -- command …`: a management command that runs on one of many machines, and not on two at a time.

It is `holdfast run`: the command is a process of its own, is stopped when the lock is lost, and never outlives it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from .....errors import Misuse
from ....django import urls_of_stores


class Command(BaseCommand):
    help = "Run another management command under a lock: if another machine runs it already, skip it."

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("name", help="the lock's name, such as nightly-report")
        parser.add_argument(
            "-w", "--wait", metavar="SECONDS", help="wait so long for the other to finish, and then run"
        )
        parser.add_argument("--at-least", metavar="SECONDS", help="stay locked so long, however short the command is")
        parser.add_argument("--ttl", metavar="SECONDS", help="how long the lock outlives a machine that died (30)")
        parser.add_argument(
            "-E", "--exit-code", default="0", metavar="CODE", help="what a skipped command ends with (0)"
        )
        parser.add_argument("--using", default=urls_of_stores.DEFAULT, help="which store of settings.HOLDFAST")
        parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="as after manage.py")

    def handle(self, *_: object, **options: Any) -> None:
        command = [word for at, word in enumerate(options["command"]) if at or word != "--"]
        if not command or command[0].startswith("-"):
            raise CommandError("name the command to run: manage.py once -w 60 nightly -- clearsessions", returncode=2)
        try:
            url = urls_of_stores.url(options["using"])
        except Misuse as error:
            raise CommandError(str(error)) from None
        words = [sys.executable, "-m", "holdfast", "run", options["name"], "--pass-url", "-E", options["exit_code"]]
        words += ["-w", options["wait"]] if options["wait"] else ["-n"]
        for option in ("at_least", "ttl"):
            if options[option]:
                words += [f"--{option.replace('_', '-')}", options[option]]
        words += ["--", *_manage(), *command]
        environment = {
            **os.environ,
            "HOLDFAST_URL": url.plain,
        }  # not among the words, which every user of the machine may read
        if getattr(self, "_called_from_command_line", False):
            self.stdout.flush()
            os.execve(sys.executable, words, environment)  # from here on signals, and the exit code, are its own
        code = subprocess.run(words, env=environment, check=False).returncode
        if code:
            raise CommandError(f"{' '.join(command)} ended with {code}", returncode=code)


def _manage() -> list[str]:
    """How this process was started: by a script such as manage.py, or by `python -m django`."""
    script = sys.argv[0]
    if os.path.basename(script) == "__main__.py":
        return [sys.executable, "-m", "django"]
    if os.access(script, os.X_OK) and not script.endswith(".py"):  # django-admin
        return [script]
    return [sys.executable, script]
