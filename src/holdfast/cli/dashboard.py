"""`holdfast dashboard`: the page by itself, on this machine unless there is a token to log in with."""

from __future__ import annotations

import os
import socket

from ..dashboard import asgi
from ..doctor.network import is_local
from ..errors import Misuse
from . import exits
from .options import Options, Usage
from .stores import several

PORT = 8377
TOKEN = "HOLDFAST_DASHBOARD_TOKEN"  # noqa: S105 - the name of a variable
SHORTEST = 16


def dashboard(options: Options) -> int:
    try:
        import uvicorn
    except ImportError as error:
        raise Misuse(f"the dashboard needs uvicorn ({error}): pip install 'holdfast[dashboard]'") from error
    host, port = _address(options.get("listen", f"127.0.0.1:{PORT}"))
    token = _token(options)
    if not is_local(host) and not token:
        raise Usage(f"others can reach {host}: say --token-file FILE (or {TOKEN}), and look only with it", "dashboard")
    urls = [url for url in several(options) if url is not None]
    app = asgi(
        *urls,
        allow_evict=options.flag("allow_evict"),
        token=token,
        mounted=False,
        interval=options.get("interval", 1.0),
        history=options.get("history"),
    )
    config = uvicorn.Config(
        app, host=host, port=port, log_level="warning", server_header=False, timeout_graceful_shutdown=1, lifespan="on"
    )

    class Server(uvicorn.Server):
        """Says where it is once it is there: with port 0, nobody else knows."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                place = self.servers[0].sockets[0].getsockname()
                shown = f"[{place[0]}]" if ":" in place[0] else place[0]
                print(f"The dashboard is at http://{shown}:{place[1]}/ (Ctrl-C ends it)", flush=True)

    server = Server(config)
    server.run()
    return exits.OK if server.started else exits.TROUBLE


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise Usage(f"--listen wants HOST:PORT, not {text!r}", "dashboard")
    return host.strip("[]") or "127.0.0.1", int(port)


def _token(options: Options) -> str | None:
    token = options.get("token") or os.environ.get(TOKEN)
    if file := options.get("token_file"):
        try:
            with open(file, encoding="utf-8") as words:
                token = words.read(4096).strip()
        except (OSError, UnicodeError) as error:
            raise Misuse(f"the token in {file!r} cannot be read: {error}") from None
    if token is not None and len(token) < SHORTEST:
        raise Misuse(f"a token has at least {SHORTEST} characters, as from: openssl rand -base64 24")
    return token
