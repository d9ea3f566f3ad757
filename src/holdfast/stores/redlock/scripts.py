"""What a node of a Redlock runs."""

from __future__ import annotations

from pathlib import Path

from ..redis.scripts import Script

_HERE = Path(__file__).parent

CLAIM = Script("claim.lua", 2, 7, _HERE)
RELEASE = Script("release.lua", 2, 4, _HERE)
RENEW = Script("renew.lua", 0, 0, _HERE)
EVICT = Script("evict.lua", 2, 5, _HERE)
INSPECT = Script("inspect.lua", 3, 2, _HERE)

ALL = (CLAIM, RELEASE, RENEW, EVICT, INSPECT)
