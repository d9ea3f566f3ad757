"""The stores that were named, where there may be several: `dashboard` and `top`."""

from __future__ import annotations

import sys

from ..secret import has_password
from .options import Options


def several(options: Options) -> list[str | None]:
    """None is HOLDFAST_URL, or the embedded one: where none was named."""
    first, others = options.get("url"), options.get("also", [])
    if any(map(has_password, others)):
        print(
            "holdfast: warning: a further URL holds a password, which all users of this machine can see (ps)",
            file=sys.stderr,
        )
    return [*([first] if first is not None or not others else []), *others]
