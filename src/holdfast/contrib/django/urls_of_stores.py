"""Which store: what settings.HOLDFAST says, or else the database that the project has.

HOLDFAST = {
    "default": {"URL": "redis://localhost:6379"},
    "orders": {"DATABASE": "orders", "OPTIONS": {"durability": "relaxed"}},   # made of DATABASES["orders"]
}
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from ...errors import Misuse
from ...secret import Secret
from .. import addresses

DEFAULT = "default"
_KNOWN = {"URL", "DATABASE", "OPTIONS", "LABEL"}


def aliases() -> list[str]:
    return sorted({DEFAULT, *_settings()})


def label(alias: str) -> str:
    return str(_entry(alias).get("LABEL", ""))


def database_of(alias: str) -> str | None:
    """The database that this store is in, by its alias; None: it has a URL of its own."""
    entry = _entry(alias)
    return None if "URL" in entry else str(entry.get("DATABASE", DEFAULT))


def url(alias: str = DEFAULT, *, testing: bool | None = None) -> Secret:
    """The store's URL, as of now: the test runner changes databases under way."""
    entry = _entry(alias)
    if "URL" in entry:
        return Secret(entry["URL"])
    if under_test() if testing is None else testing:
        # The test's database is dropped at the end, and cannot be while a connection of ours is open; and there is one process.
        return Secret(f"memory://django-{alias}")
    return _of_database(str(entry.get("DATABASE", DEFAULT)), entry.get("OPTIONS", {}))


def under_test() -> bool:
    """Is this Django's test runner, or pytest-django?"""
    utilities = sys.modules.get("django.test.utils")
    return utilities is not None and hasattr(utilities._TestState, "saved_data")


def _settings() -> Mapping[str, Any]:
    from django.conf import settings

    found = getattr(settings, "HOLDFAST", {})
    if not isinstance(found, Mapping):
        raise Misuse('settings.HOLDFAST must be a dict of stores, as in {"default": {"URL": "redis://localhost:6379"}}')
    return found


def _entry(alias: str) -> Mapping[str, Any]:
    found = _settings()
    if alias not in found:
        if alias == DEFAULT:
            return {}
        raise Misuse(f"settings.HOLDFAST has no store {alias!r} (it has: {', '.join(sorted(found)) or 'none'})")
    entry = found[alias]
    if not isinstance(entry, Mapping) or not set(entry) <= _KNOWN:
        strange = ", ".join(sorted(set(entry) - _KNOWN)) if isinstance(entry, Mapping) else "it is no dict"
        raise Misuse(f"settings.HOLDFAST[{alias!r}] takes {', '.join(sorted(_KNOWN))} ({strange})")
    if "URL" in entry:
        if not isinstance(entry["URL"], str):
            raise Misuse(f"settings.HOLDFAST[{alias!r}]['URL'] must be text, and is {entry['URL']!r:.80}")
        if surplus := [word for word in ("DATABASE", "OPTIONS") if word in entry]:
            raise Misuse(
                f"settings.HOLDFAST[{alias!r}] has a URL, and {' and '.join(surplus)}, which says how to make one: "
                "leave one of them out, and write options into the URL, after a ?"
            )
    return entry


def _of_database(name: str, options: Mapping[str, Any]) -> Secret:
    from django.conf import settings

    if name not in settings.DATABASES:
        raise Misuse(f"settings.HOLDFAST wants the database {name!r}, and settings.DATABASES has none of that name")
    database = settings.DATABASES[name]
    engine = str(database.get("ENGINE", "")).rpartition(".")[2]
    if engine == "sqlite3":
        return Secret(addresses.beside(str(database["NAME"]), options))
    if engine in ("postgresql", "postgis", "postgresql_psycopg2"):
        return Secret(_networked("postgresql", database, {**_libpq(database), **options}))
    if engine == "mysql":
        return Secret(_networked("mysql", database, {**_mysql(database), **options}))
    raise Misuse(
        f"no store can be made of the database {name!r} (its engine is {engine or 'none'}): "
        'say where the locks are, as in HOLDFAST = {"default": {"URL": "redis://localhost:6379"}}'
    )


def _networked(scheme: str, database: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    place = {part.lower(): database.get(part) for part in ("NAME", "USER", "PASSWORD", "HOST", "PORT")}
    return addresses.networked(scheme, **place, options=options)


def _libpq(database: Mapping[str, Any]) -> dict[str, str]:
    said = database.get("OPTIONS") or {}
    return {key: str(said[key]) for key in addresses.OF_LIBPQ if key in said}


def _mysql(database: Mapping[str, Any]) -> dict[str, str]:
    return addresses.tls_of_mysql(database.get("OPTIONS") or {})
