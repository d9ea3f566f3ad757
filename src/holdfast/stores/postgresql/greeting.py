"""What is said on a new connection: is the schema there, is it ours to use, is there a pooler in between?

Written as a conversation without a connection: it yields what to ask and is sent the rows, so both wires hold it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from ...errors import Misuse
from . import migration, replies
from .replies import ServerError
from .statements import Row, SessionStatements, Statements
from .url import Target

OLDEST = 140000
_PLAINLY = (
    "SET standard_conforming_strings = on; "  # else the server reads a backslash in our functions as something else
)

# Does a pooler lend one server connection to several of ours, transaction by transaction? While one of ours is idle and
# another is in a transaction, each has a server of its own, unless they are lent. What to say on which of two connections:
_WHO = "SELECT pg_catalog.pg_backend_pid()"
SHARING = ((0, _WHO), (1, "BEGIN"), (1, _WHO), (0, _WHO), (1, "ROLLBACK")) * 3


def is_lent(answers: Sequence[list[Row]]) -> bool:
    """By the answers to SHARING."""
    for first in range(0, len(SHARING), 5):
        mine, _, theirs, again, _ = answers[first : first + 5]
        if mine == theirs or mine != again:
            return True
    return False


class Greeting:
    """What one store knows about its server."""

    def __init__(self, target: Target, statements: Statements | SessionStatements) -> None:
        self._target = target
        self._statements = statements
        self.known = False
        self.pooled = False

    def conversation(self, introduced: int) -> Generator[str, list[Row], None]:
        """With a server that introduced itself by that pid."""
        target = self._target
        ((pid, version, there, owner),) = yield migration.question(target.schema)
        if int(version) < OLDEST:
            raise Misuse(
                f"PostgreSQL at {target.where} is of version {int(version) // 10000}; holdfast needs 14 or later"
            )
        self.pooled = int(pid) != introduced
        if owner:
            raise Misuse(
                f"this login to PostgreSQL at {target.where} is a superuser, or may run programs on the server or use its files, "
                f"and something in the schema {target.schema!r} belongs to the role {owner.decode()!r}, which may not: its "
                "functions would act with all your rights. Connect as that role; to SET ROLE is not enough"
            )
        if there != b"t":
            if not target.create:
                raise Misuse(
                    f"the schema {target.schema!r} does not exist at {target.where}, and create=no: have it created with "
                    "the output of `holdfast migrate --sql --url …`"
                )
            try:
                # The owner of the database may have said that types and functions are looked for elsewhere first.
                yield f"{_PLAINLY}SET LOCAL search_path = pg_catalog, pg_temp; {migration.text(target.schema)}"
            except ServerError as error:
                raise replies.not_created(error, target.where, target.schema) from None
        ((found,),) = yield f'SELECT "{target.schema}".version()'
        if int(found) != migration.VERSION:
            raise Misuse(
                f"the schema {target.schema!r} at {target.where} is of version {int(found)}, this holdfast knows "
                f"{migration.VERSION}: "
                + ("upgrade holdfast" if int(found) > migration.VERSION else "run `holdfast migrate`")
            )
        self.known = True

    def setting_up(self) -> str:
        """Of a connection that is ours alone. What a role or database has set otherwise must not change what we mean.

        The server gives up a little before we do, so that nothing is done after we have stopped waiting for it.
        """
        patience = max(1, int(self._target.timeout * 900))
        return (
            f"{_PLAINLY}SET default_transaction_isolation = 'read committed'; SET default_transaction_deferrable = off; "
            f"SET lock_timeout = {patience}; SET statement_timeout = {patience}; SET idle_session_timeout = 0; "
            "SET idle_in_transaction_session_timeout = 0; SET client_min_messages = error; "
            f"SET search_path = pg_catalog, pg_temp; {self._statements.preparing}"
        )
