"""Django: put "holdfast.contrib.django" into INSTALLED_APPS. See docs/django.md.

from holdfast.contrib.django import fenced, lock, locks, once

with locks.lock("invoice:42") as lease:      # in the database that you have, or where settings.HOLDFAST says
    with fenced.atomic(lease):
        ...
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import fenced
    from .connections import alocks, locks
    from .decorators import lock, once

__all__ = ["locks", "alocks", "lock", "once", "fenced"]

_WHERE = {"locks": "connections", "alocks": "connections", "lock": "decorators", "once": "decorators"}


def __getattr__(name: str) -> Any:
    """Late: Django imports this package before its settings are to be relied on."""
    if name == "fenced":
        return import_module(f"{__name__}.fenced")
    if name in _WHERE:
        return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
