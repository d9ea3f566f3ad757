"""A page of ours, served by uvicorn until Ctrl-C: `dashboard` and `lab`."""

from __future__ import annotations

import errno
import os
import socket
from typing import Any

from ..errors import Misuse
from . import exits
from .options import Options, Usage


def serve(app: Any, host: str, port: int, what: str) -> int:
    try:
        import uvicorn
    except ImportError as error:
        raise Misuse(f"{what.lower()} needs uvicorn ({error}): pip install 'holdfast[dashboard]'") from error
    _can_be_listened_on(host, port)
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
                print(f"{what} is at http://{shown}:{place[1]}/ (Ctrl-C ends it)", flush=True)

    server = Server(config)
    server.run()
    return exits.OK if server.started else exits.TROUBLE


def _can_be_listened_on(host: str, port: int) -> None:
    """Else uvicorn would say it, in its own way, and end with a code of its own."""
    try:
        for family, kind, protocol, _, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            with socket.socket(family, kind, protocol) as probe:
                if os.name == "posix":  # as asyncio does: what was left a moment ago may be taken again
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place)
    except OSError as error:
        if error.errno in (errno.EADDRINUSE, errno.EACCES) or isinstance(error, socket.gaierror):
            why = (error.strerror or str(error)).lower()
            raise Misuse(f"cannot listen on {host}:{port}: {why}. Say another with --listen HOST:PORT") from None


def address(options: Options, port: int) -> tuple[str, int]:
    text = options.get("listen", f"127.0.0.1:{port}")
    host, _, number = text.rpartition(":")
    if not (number.isascii() and number.isdigit() and len(number) < 6 and int(number) < 65536):
        raise Usage(f"--listen wants HOST:PORT, not {text!r}", options.command)
    return host.strip("[]") or "127.0.0.1", int(number)
