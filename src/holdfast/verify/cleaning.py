"""All names of a run are under a prefix of its own. At the end nobody may be inside or in line under it."""

from __future__ import annotations

import time

from .. import sync
from ..errors import HoldfastError, Unavailable
from ..secret import Secret

_AGAIN = 0.1


def clean(url: Secret, prefix: str, seconds: float) -> list[str]:
    """Put out what the killed have left inside, and wait for the rest to expire. Returns what is there after that."""
    end = time.monotonic() + seconds
    last: HoldfastError | None = None
    with sync.connect(url, label="holdfast verify") as locks:
        while True:
            try:
                names = locks.names(prefix)
                for name in names:
                    for holding in locks.inspect(name).holders:
                        locks.force_release(name, token=holding.token)
                if not names:
                    return []
            except Unavailable as error:
                last, names = error, ()
            if time.monotonic() > end:
                return [f"{name} is still in use" for name in names] or [f"could not look what is left: {last}"]
            time.sleep(_AGAIN)
