"""What these tests share."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable
from typing import Any

from holdfast.claim import Claim, new_holder
from holdfast.sync import Locks
from holdfast.testing.servers import wire
from holdfast.testing.servers.consul import Consul

SOON = 20.0
Connect = Callable[..., Locks]


def until(condition: Callable[[], object], within: float = SOON) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"did not come true within {within:g} s"
        time.sleep(0.005)


def claim_of(name: str, ttl: float = 30.0) -> Claim:
    return Claim(name, new_holder(), "host/1/somebody", ttl)


class Background:
    """Something that a thread does."""

    def __init__(self, action: Callable[[], Any]) -> None:
        self._action = action
        self._result: Any = None
        self._error: BaseException | None = None
        self.ended_at = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._action()
        except BaseException as error:
            self._error = error
        self.ended_at = time.monotonic()

    def result(self, within: float = SOON) -> Any:
        self._thread.join(within)
        assert not self._thread.is_alive(), f"not done within {within:g} s"
        if self._error is not None:
            raise self._error
        return self._result


def ask(server: Consul, method: str, path: str, body: Any = None) -> Any:
    return wire.http_json(server.address, method, path, body)


def keys(server: Consul, prefix: str) -> list[str]:
    """All that is kept under a prefix."""
    body = [{"KV": {"Verb": "get-tree", "Key": f"{prefix}/"}}]
    return [one["KV"]["Key"] for one in ask(server, "PUT", "/v1/txn?consistent", body)["Results"] or ()]


def book(server: Consul, prefix: str, name: str) -> Any:
    body = [{"KV": {"Verb": "get-tree", "Key": f"{prefix}/locks/{name}:"}}]
    results = ask(server, "PUT", "/v1/txn?consistent", body)["Results"]
    return json.loads(base64.b64decode(results[0]["KV"]["Value"])) if results else None


def session_of(server: Consul, prefix: str, name: str) -> str:
    """The session of who is inside."""
    found: str = book(server, prefix, name)[1][0][1]
    return found
