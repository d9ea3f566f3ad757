"""As much of Consul as its store asks of it, served over simulated streams: sessions, transactions, blocking queries.

One process, whose log is the order in which it does things. What is real here is the client.
"""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from holdfast.drivers.base import Address
from holdfast.drivers.simulated import Bell, Process
from holdfast.drivers.simulated_streams import SimulatedStream, Streams

Pair = dict[str, Any]


class ScriptedConsul:
    def __init__(self, process: Process, streams: Streams, address: Address) -> None:
        self.process = process
        self.index = 0
        self.pairs: dict[str, Pair] = {}
        self.sessions: dict[str, tuple[float, float]] = {}  # id → when it ends, and how long it lives
        self.asked: list[str] = []
        self._listening: set[Bell] = set()
        streams.listen(address, process, self._serve)

    # ---- HTTP

    async def _serve(self, stream: SimulatedStream) -> None:
        data = b""
        try:
            while True:
                while b"\r\n\r\n" not in data:
                    data += (more := await stream.receive(float("inf")))
                    if not more:
                        return stream.close()
                head, _, data = data.partition(b"\r\n\r\n")
                first, *lines = head.decode().split("\r\n")
                length = next(int(line.split(":")[1]) for line in lines if line.startswith("Content-Length"))
                while len(data) < length:
                    data += (more := await stream.receive(float("inf")))
                    if not more:
                        return stream.close()
                body, data = data[:length], data[length:]
                method, target, _ = first.split(" ")
                self.asked.append(target)
                status, said = await self._answer(method, target, body)
                content = json.dumps(said).encode()
                answer = (
                    f"HTTP/1.1 {status} X\r\nX-Consul-Index: {self.index}\r\nContent-Length: {len(content)}\r\n\r\n"
                )
                await stream.send(answer.encode() + content, float("inf"))
        except OSError:
            stream.close()

    async def _answer(self, method: str, target: str, body: bytes) -> tuple[int, Any]:
        self._end_overdue()
        parts = urlsplit(target)
        if parts.path == "/v1/session/create":
            ttl = float(json.loads(body)["TTL"].rstrip("s"))
            self.index += 1
            session = f"00000000-0000-0000-0000-{self.index:012}"
            self.sessions[session] = self._now() + 2 * ttl, 2 * ttl
            return 200, {"ID": session}
        if parts.path.startswith("/v1/session/renew/"):
            session = parts.path.rpartition("/")[2]
            if session not in self.sessions:
                return 404, []
            lives = self.sessions[session][1]
            self.sessions[session] = self._now() + lives, lives
            return 200, [{"ID": session}]
        if parts.path.startswith("/v1/session/destroy/"):
            self.end(parts.path.rpartition("/")[2])
            return 200, True
        if parts.path == "/v1/txn":
            return self._transaction([one["KV"] for one in json.loads(body)])
        query = parse_qs(parts.query, keep_blank_values=True)
        key = unquote(parts.path.removeprefix("/v1/kv/"))
        await self._changed(int(query["index"][0]), float(query["wait"][0].rstrip("s")))
        found = [one for one in self.pairs.values() if one["Key"] == key or ("recurse" in query and _under(one, key))]
        return (200, found) if found else (404, "")

    async def _changed(self, index: int, wait: float) -> None:
        """Of anything: Consul, too, tells more than was asked for."""
        bell = self.process.driver.bell()
        self._listening.add(bell)
        give_up = self._now() + wait
        while self.index <= index and self._now() < give_up:
            await bell.wait(min(give_up - self._now(), 0.2))
            self._end_overdue()
        self._listening.discard(bell)

    # ---- keys and sessions

    def end(self, session: str) -> None:
        if self.sessions.pop(session, None) is not None:
            for key in [key for key, one in self.pairs.items() if one.get("Session") == session]:
                del self.pairs[key]
            self._next()

    def _end_overdue(self) -> None:
        for session in [one for one, (ends, _) in self.sessions.items() if ends < self._now()]:
            self.end(session)

    def _transaction(self, operations: list[Pair]) -> tuple[int, Any]:
        before, results = dict(self.pairs), []
        index = self.index + 1
        for at, one in enumerate(operations):
            trouble, found = self._apply(one, index)
            if trouble:
                self.pairs = before
                return 409, {"Results": None, "Errors": [{"OpIndex": at, "What": trouble}]}
            results += found
        if self.pairs != before:
            self._next()
        return 200, {"Results": [{"KV": one} for one in results], "Errors": None}

    def _apply(self, one: Pair, index: int) -> tuple[str, list[Pair]]:
        verb, key = one["Verb"], one["Key"]
        held = self.pairs.get(key)
        if verb == "get-tree":
            return "", [pair for pair in self.pairs.values() if _under(pair, key)]
        if verb == "check-not-exists":
            return ("it exists" if held else ""), []
        if verb == "check-index":
            return ("" if held and held["ModifyIndex"] == one["Index"] else "another index"), []
        if verb == "delete":
            self.pairs.pop(key, None)
            return "", []
        owner = held.get("Session", "") if held else ""
        if verb == "lock":
            if one["Session"] not in self.sessions or owner not in ("", one["Session"]):
                return "invalid session", []
            owner = one["Session"]
        elif verb == "unlock":
            if owner != one["Session"]:
                return "not the holder", []
            owner = ""
        pair: Pair = {"Key": key, "Value": one["Value"], "ModifyIndex": index}
        self.pairs[key] = {**pair, "Session": owner} if owner else pair
        return "", [self.pairs[key]]

    def _next(self) -> None:
        self.index += 1
        for bell in self._listening:
            bell.ring()

    def _now(self) -> float:
        return self.process.driver.now()

    def value(self, key: str) -> bytes:
        return base64.b64decode(self.pairs[key]["Value"])


def _under(pair: Pair, prefix: str) -> bool:
    return str(pair["Key"]).startswith(prefix)
