"""Who holds what, who waits for whom, and what needs attention: a page, live, over one or several stores.

    app = holdfast.dashboard.asgi("redis://…")                        # an ASGI application, to be mounted behind your own login
    $ holdfast dashboard --url redis://…                              # or by itself, on http://127.0.0.1:8377/

Needs `pip install 'holdfast[dashboard]'`. Read-only unless it is told otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import Misuse

if TYPE_CHECKING:
    from .app import Dashboard

__all__ = ["asgi"]
SHORTEST = 16  # characters of a token: nobody tries that many


def asgi(
    *urls: str,
    allow_evict: bool = False,
    token: str | None = None,
    mounted: bool = True,
    interval: float = 1.0,
    history: str | None = None,
) -> Dashboard:
    """The dashboard of these stores, as an ASGI application; without any, of HOLDFAST_URL or the embedded one.

    `mounted`: your application sees to it who may come here, as behind its own login. False: only requests to this machine by
    its own name (localhost, 127.0.0.1) are answered, unless there is a `token` to log in with. `allow_evict` lets whoever may
    look evict holders too, and wants a `token` unless it is mounted. A `token` has 16 characters or more. `history` is a file
    to keep the last 10,000 events in.
    """
    if token is not None and len(token) < SHORTEST:  # an empty one, too: it would leave the door open
        raise Misuse(f"a token has at least {SHORTEST} characters, as from: openssl rand -base64 24")
    if allow_evict and token is None and not mounted:
        raise Misuse("every user of this machine could evict holders with your rights: with allow_evict give a token")
    try:
        from .app import Dashboard
    except ImportError as error:
        raise Misuse(f"the dashboard needs starlette ({error}): pip install 'holdfast[dashboard]'") from error
    return Dashboard(urls, allow_evict=allow_evict, token=token, mounted=mounted, interval=interval, history=history)
