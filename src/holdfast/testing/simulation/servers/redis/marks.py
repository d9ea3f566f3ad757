"""What our scripts have written, as far as a judge must know: the last token of a name."""

from __future__ import annotations

import struct

from .keyspace import Value
from .packing import unpack_all


def last_token(state: Value | None) -> int:
    """0: this is no state of a name."""
    if not isinstance(state, bytes):
        return 0
    if state.startswith(b"hf:many"):
        return int(unpack_all(state[7:])[0])
    return int(struct.unpack_from(">d", state, 7)[0]) if state.startswith((b"hf:idle", b"hf:sole")) else 0
