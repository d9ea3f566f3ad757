"""Run all benchmarks, or those named: `python -m benchmarks [foundation …]`. Exits non-zero if a bar is missed."""

from __future__ import annotations

import sys
from importlib import import_module

ALL = (
    "foundation",
    "redis",
    "keep",
    "etcd",
    "zookeeper",
    "consul",
    "postgresql",
    "mysql",
    "fenced",
    "lockfree",
    "observe",
    "dashboard",
)

if __name__ == "__main__":
    names = sys.argv[1:] or ALL
    met = [import_module(f"benchmarks.{name}").main() for name in names]
    sys.exit(not all(met))
