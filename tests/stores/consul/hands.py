"""What these tests share."""

from __future__ import annotations

import base64
import json
from typing import Any

from holdfast.testing.servers import wire
from holdfast.testing.servers.consul import Consul


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
