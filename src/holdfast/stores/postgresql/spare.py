"""Dedicated connections of one store: new ones, and those that nobody's lock lives with any more, kept for the next."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from ...errors import Unavailable
from . import replies
from .connection import Broken
from .replies import ServerError
from .wire import AnyConnection, Wire


class Spare(Protocol):
    def idle(self) -> None: ...
    def close(self) -> None: ...
    def disown(self) -> None: ...


AnySession = TypeVar("AnySession", bound=Spare)


class SparingWire(Wire, Generic[AnySession]):
    _spare: list[AnySession]

    async def _dedicated(self, kind: type[AnyConnection], deadline: float) -> tuple[AnyConnection, int]:
        """Connected, and told how to wait; with the pid of its backend."""
        connection = await self.open(kind, deadline)
        try:
            ((pid,),) = await connection.tell(settings(self.target.relaxed), self._by(deadline))
        except BaseException as error:
            connection.close()
            if isinstance(error, ServerError):
                raise replies.explained(error, self.where, self.target.schema) from None
            if isinstance(error, Broken):
                raise Unavailable(str(error)) from None
            raise
        return connection, int(pid)

    def free(self, session: AnySession) -> None:
        session.idle()
        if len(self._spare) < self.target.pool:
            self._spare.append(session)
        else:
            session.close()

    def forked(self) -> None:
        for session in self._spare:
            session.disown()
        self._spare = []
        super().forked()


def settings(relaxed: bool) -> str:
    """Of a connection that waits as long as it takes, and then sees what others did meanwhile.

    Answered by its backend's pid: a pooler introduces itself by another.
    """
    return (
        "SET default_transaction_isolation = 'read committed'; SET lock_timeout = 0; SET statement_timeout = 0; "
        "SET client_connection_check_interval = 1000; "
        f"SET holdfast.relaxed = {'yes' if relaxed else 'no'}; SELECT pg_catalog.pg_backend_pid()"
    )
