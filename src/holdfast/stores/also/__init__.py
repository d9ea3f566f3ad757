"""A second lock in another library's format, so that old code and new code exclude each other while both run.

`holdfast.connect(url, also="redis-py+redis://localhost:6379")`: the part before the `+` says whose lock it is, the rest where.
Without it, the second lock is holdfast's own, at another URL. `?as=job:{name}` says how the old code calls what is `name` here.
"""

from __future__ import annotations

from importlib import import_module
from urllib.parse import unquote

from ...drivers.base import Driver
from ...errors import Misuse
from ...secret import Secret, plausible
from .old import Names, Old

# Whose lock → the module that knows its format, and the schemes after the +.
FORMATS = {
    "redis-py": ("redis_keys", ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel")),
    "python-redis-lock": ("redis_keys", ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel")),
    "kazoo": ("nodes", ("zookeeper", "zookeepers")),
    "curator": ("nodes", ("zookeeper", "zookeepers")),
    "advisory": ("advisory", ("postgresql", "postgres")),
    "shedlock": ("shedlock", ("postgresql", "postgres", "mysql", "mariadb")),
}


def open_old(url: Secret, driver: Driver) -> Old | None:
    """None: it is no other library's, but a store of holdfast."""
    scheme, _, rest = url.plain.partition("://")
    whose, plus, scheme = scheme.partition("+")
    if not plus or whose not in FORMATS:
        _not_meant(whose, scheme)
        return None
    module, schemes = FORMATS[whose]
    if scheme not in schemes:
        raise Misuse(f"also={whose}+{scheme}://…: the locks of {whose} are at {' or '.join(schemes)}://…")
    plausible(f"{scheme}://{rest}")
    place, _, query = rest.partition("?")
    options = [one for one in query.split("&") if one]
    pattern = [unquote(one[3:]) for one in options if one.startswith("as=")]
    options = [one for one in options if not one.startswith("as=")]
    names = Names(pattern[-1] if pattern else "{name}")
    opened: Old = import_module(f"{__name__}.{module}").open_format(
        whose, f"{scheme}://{place}" + ("?" + "&".join(options) if options else ""), names, driver
    )
    return opened


def _not_meant(whose: str, scheme: str) -> None:
    """Somebody wrote a format nearly right; everything else is another store's URL, and is judged as that."""
    from difflib import get_close_matches  # late: few mistype

    # So near that `redis`, which is a store, is not `redis-py`.
    if near := get_close_matches(whose, FORMATS, 1, 0.8):
        raise Misuse(
            f"also={whose}{'+' if scheme else ''}{scheme}://…: did you mean {near[0]}+{scheme or FORMATS[near[0]][1][0]}://…?"
        )
