"""`holdfast lab`: failures of locks, on a page, run in the simulator."""

from __future__ import annotations

from pathlib import Path

from ..drivers.dialing import is_local
from ..errors import Misuse
from .options import Options, Usage
from .serving import address, serve

PORT = 8378


def lab(options: Options) -> int:
    try:
        from ..lab.app import Lab
    except ImportError as error:
        raise Misuse(f"the laboratory needs starlette ({error}): pip install 'holdfast[dashboard]'") from error
    host, port = address(options, PORT)
    if not is_local(host):  # whoever asks makes it work
        raise Usage(f"others can reach {host}: the laboratory is for this machine", "lab")
    record = options.get("record")
    return serve(Lab(Path(record) if record is not None else None), host, port, "The laboratory")
