"""What every answer of our pages carries, and how they are made: for the dashboard and the laboratory alike."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files

from starlette.responses import JSONResponse, Response

# Nothing from elsewhere, nothing inline, no frame around us; and no script may make HTML of text.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def dumped(data: object) -> str:
    return json.dumps(data, separators=(",", ":"))  # ASCII only: no line separator of any kind in it


def json_answer(data: object, status: int = 200) -> Response:
    return JSONResponse(data, status, HEADERS)


def refusal(status: int, why: str) -> Response:
    return json_answer({"error": why}, status)


def file_answer(
    package: str | None, known: Mapping[str, str], name: str, status: int = 200, *, without: str = ""
) -> Response:
    """A file of the folder `page` of this package; `known` are those that may be asked for, with their types."""
    if package is None or name not in known:
        return refusal(404, "there is no such file")
    text = files(package).joinpath("page", name).read_text(encoding="utf-8")
    return Response(text.replace(without, "") if without else text, status, HEADERS, known[name])
