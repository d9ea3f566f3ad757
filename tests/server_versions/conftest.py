"""Not part of `make test`: `make server-versions` asks for it."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("HOLDFAST_SERVER_VERSIONS") else ["test_*.py"]
