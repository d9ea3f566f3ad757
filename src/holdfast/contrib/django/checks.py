"""`manage.py check` finds a wrong setting; `manage.py check --database default` asks the store itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from django.core import checks

from ...errors import HoldfastError, Misuse
from ...sync import connect
from . import urls_of_stores

WRONG, UNREACHABLE, REFUSED, PRIVATE = "holdfast.E001", "holdfast.W002", "holdfast.E003", "holdfast.W004"


@checks.register("holdfast")
def settings_are_right(app_configs: object, **_: object) -> list[Any]:
    """Nothing is sent: whether the URL can be understood, and what it needs is installed."""
    from django.conf import settings

    found: list[Any] = []
    for alias in _aliases(found):
        try:
            url = urls_of_stores.url(alias, testing=False)
            locks = connect(url)
        except HoldfastError as error:
            found.append(checks.Error(f"The store {alias!r} of settings.HOLDFAST: {error}", id=WRONG))
            continue
        if locks.traits.scope == "process" and not settings.DEBUG and not urls_of_stores.under_test():
            hint = "Fine for tests. With several processes, name a store that they share."
            found.append(
                checks.Warning(
                    f"The locks of {alias!r} are in memory: every process has its own.", hint=hint, id=PRIVATE
                )
            )
        locks.close()
    return found


@checks.register(checks.Tags.database)
def stores_answer(app_configs: object, databases: Iterable[str] | None = None, **_: object) -> list[Any]:
    """Is the store there, are its tables, may we use them; and session locks behind a pooler are no locks."""
    found: list[Any] = []
    if not databases:
        return found
    for alias in _aliases(found):
        try:
            url = urls_of_stores.url(alias, testing=False)
            with connect(url) as locks:
                locks.ping()
                if "mode=session" in url.plain:
                    _try(locks.lock("holdfast:check", ttl=10).try_acquire)
        except Misuse as error:
            found.append(checks.Error(f"The store {alias!r}: {error}", id=REFUSED))
        except HoldfastError as error:
            # A warning: `manage.py migrate`, which creates what is missing, would stop at an error.
            found.append(checks.Warning(f"The store {alias!r} does not answer: {error}", id=UNREACHABLE))
    return found


def _aliases(found: list[Any]) -> list[str]:
    try:
        return urls_of_stores.aliases()
    except Misuse as error:
        found.append(checks.Error(str(error), id=WRONG))
        return []


def _try(acquire: Callable[[], Any]) -> None:
    lease = acquire()
    if lease is not None:
        lease.release()
