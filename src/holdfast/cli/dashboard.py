"""`holdfast dashboard`: the page by itself, on this machine unless there is a token to log in with."""

from __future__ import annotations

import os

from ..dashboard import asgi
from ..drivers.dialing import is_local
from ..errors import Misuse
from .options import Options, Usage
from .serving import address, serve
from .stores import several

PORT = 8377
TOKEN = "HOLDFAST_DASHBOARD_TOKEN"  # noqa: S105 - the name of a variable


def dashboard(options: Options) -> int:
    host, port = address(options, PORT)
    token = _token(options)
    if not is_local(host) and not token:
        raise Usage(f"others can reach {host}: say --token-file FILE (or {TOKEN}), and look only with it", "dashboard")
    if options.flag("allow_evict") and not token:
        raise Usage(
            f"every user of this machine can reach {host}, and could evict holders with your rights: with --allow-evict say "
            f"--token-file FILE (or {TOKEN})",
            "dashboard",
        )
    urls = [url for url in several(options) if url is not None]
    app = asgi(
        *urls,
        allow_evict=options.flag("allow_evict"),
        token=token,
        mounted=False,
        interval=options.get("interval", 1.0),
        history=options.get("history"),
    )
    return serve(app, host, port, "The dashboard")


def _token(options: Options) -> str | None:
    token = options.get("token") or os.environ.get(TOKEN)
    if file := options.get("token_file"):
        try:
            with open(file, encoding="utf-8") as words:
                token = words.read(4096).strip()
        except (OSError, UnicodeError) as error:
            raise Misuse(f"the token in {file!r} cannot be read: {error}") from None
    return token
