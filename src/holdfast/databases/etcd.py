"""etcd, through its JSON gateway with httpx."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from ..errors import Unavailable
from .wire import settle

Json = dict[str, Any]


def encode(data: str | bytes) -> str:
    return b64encode(data.encode() if isinstance(data, str) else data).decode()


async def post(client: Any, transaction: Json) -> Json:
    """One transaction, as /v3/kv/txn takes it."""
    response = await settle(client.post("/v3/kv/txn", json=transaction))
    if response.status_code != 200:
        raise Unavailable(f"etcd answered {response.status_code}: {response.text[:200]}")
    answer: Json = response.json()
    return answer
