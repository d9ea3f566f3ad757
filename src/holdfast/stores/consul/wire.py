"""Requests to Consul over HTTP/1.1, one at a time on a connection of the pool. Nothing is retried here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from ...drivers.base import Driver
from ...errors import Unavailable
from ...secret import SecretBytes
from ..kit.doubts import MOMENT
from ..kit.members import Members
from ..kit.pool import Connection, Loan, Pool
from ..kit.url import tls_context
from .keys import MOST_OPERATIONS, Step, delete, tree
from .replies import MOST, MOST_LISTED, Answer, Item, Reader, checked, first_error, index, items, refusal, told
from .url import Target

MOST_AT_ONCE = 32  # Consul lets one client have 200 connections


class Failed(NamedTuple):
    """A transaction that changed nothing."""

    about: str
    session: str
    delayed: bool  # by the lock-delay of a session that died


class Wire:
    def __init__(self, target: Target, driver: Driver) -> None:
        tls = tls_context(target.ca, target.cert, target.cert_key) if target.tls else None
        self.pool = Pool(driver, "Consul", Members(target.addresses), tls, MOST_AT_ONCE, answers=self._answers)
        self._nothing = json.dumps([delete(f"{target.prefix}/sessions/none")]).encode()
        self.where = self.pool.where
        self._now = driver.now
        self._token = SecretBytes(f"X-Consul-Token: {target.token.plain}\r\n".encode() if target.token else b"")
        self._datacenter = f"dc={target.datacenter}" if target.datacenter else ""

    async def ask(
        self, method: str, path: str, body: bytes, deadline: float, *, apart: bool = False, waits: bool = False
    ) -> Answer:
        """`path` has been quoted already. `apart`: on a connection that no crowd can keep from it. `waits`: Consul answers when
        there is something to tell."""
        began = self._now()
        if began >= deadline:
            raise Unavailable(f"Consul at {self.where} did not answer in time")
        most = MOST_LISTED if path.startswith("/v1/txn") or "?recurse" in path else MOST
        if self._datacenter:
            path += ("&" if "?" in path else "?") + self._datacenter
        loan, whole = Loan(), False
        try:
            connection = await self.pool.lend(loan, deadline, apart=apart)
            try:
                await connection.stream.send(self._request(method, path, body, connection), loan.deadline)
                try:
                    soon = loan.deadline if waits else min(loan.deadline, self._now() + MOMENT)
                    data = await connection.stream.receive(soon)
                except TimeoutError:
                    if waits:
                        raise
                    data = await self.pool.receive(loan)
                reader = Reader(most)
                while (answer := reader.feed(data) if data else reader.end()) is None:
                    if self._now() >= loan.deadline:  # it may have much to say, and never an end
                        raise TimeoutError("no answer in time")
                    data = await connection.stream.receive(loan.deadline)
            except (OSError, EOFError, ValueError) as error:
                raise self.pool.lost(connection, error, deadline - began) from error
            whole = bool(data) and reader.keeps_alive
        finally:
            self.pool.take_back(loan, whole=whole)
        if answer.status >= 500:
            self.pool.pass_over(connection.address)  # it may be cut off from the quorum, and another may not
        return answer

    def _request(self, method: str, path: str, body: bytes, connection: Connection) -> SecretBytes:
        head = f"{method} {path} HTTP/1.1\r\nHost: {connection.shown}\r\nContent-Length: {len(body)}\r\n".encode()
        return SecretBytes(head + self._token + b"\r\n" + body)

    async def _answers(self, connection: Connection, deadline: float) -> None:
        """A change of nothing: it is for the disks of a majority, as a claim is, and comes after all that was asked before."""
        path = "/v1/txn" + (f"?{self._datacenter}" if self._datacenter else "")
        await connection.stream.send(self._request("PUT", path, self._nothing, connection), deadline)
        reader = Reader(MOST)
        while (answer := reader.feed(await connection.stream.receive(deadline))) is None:
            if self._now() >= deadline:
                raise TimeoutError("no answer in time")
        if answer.status != 200:  # also a refusal: for that it needs no disk
            raise Unavailable(f"Consul at {connection.shown} says {answer.status}")

    # ---- transactions

    async def look(self, trees: Sequence[str], deadline: float, *, apart: bool = False) -> list[Item]:
        """All keys that begin so, as the quorum has them: a leader that was deposed would not notice."""
        found: list[Item] = []
        size = 0
        for at in range(0, len(trees), MOST_OPERATIONS):
            body = json.dumps([tree(key) for key in trees[at : at + MOST_OPERATIONS]]).encode()
            answer = await self.ask("PUT", "/v1/txn?consistent", body, deadline, apart=apart)
            if checked(answer, self.where).status != 200:
                raise self._refused(answer.body)
            size += len(answer.body)
            if size > MOST_LISTED:
                raise Unavailable(f"Consul at {self.where} has more than {MOST_LISTED >> 20} MB to tell")
            found += told(answer, self.where, items)
        return found

    async def commit(self, steps: Sequence[Step], deadline: float) -> int | Failed:
        """The index of the change, by which it is known for ever; or why there was none."""
        body = json.dumps([step.operation for step in steps]).encode()
        answer = await self.ask("PUT", "/v1/txn", body, deadline)
        checked(answer, self.where)
        if answer.status == 200:
            return told(answer, self.where, index)
        if b"Permission denied" in answer.body:
            raise self._refused(answer.body)
        at, what = told(answer, self.where, first_error)
        if not 0 <= at < len(steps):
            raise self._refused(answer.body)
        return Failed(steps[at].about, steps[at].session, "lock delay" in what)

    def _refused(self, body: bytes) -> Exception:
        return refusal(403 if b"Permission denied" in body else 500, body, self.where)
