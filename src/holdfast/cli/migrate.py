"""`holdfast migrate --sql`: what a SQL store creates in its database, for those whose application may not."""

from __future__ import annotations

from importlib import import_module

from ..connecting import BUILT_IN, resolve
from ..errors import Misuse
from ..secret import redacted
from . import exits
from .options import Options, Usage


def migrate(options: Options) -> int:
    if not options.flag("sql"):
        raise Usage("say --sql: it prints the statements, and a person decides", "migrate")
    url = resolve(options.get("url"))
    scheme = url.partition("://")[0]
    # A store that creates something in a database has a function schema(url) -> str beside its open_store.
    schema = getattr(import_module(BUILT_IN[scheme]), "schema", None) if scheme in BUILT_IN else None
    if schema is None:
        raise Misuse(f"{redacted(url)!r} is no store that creates a schema in a database: name one with --url")
    text: str = schema(url.plain)
    if options.flag("json"):
        import json

        print(json.dumps({"scheme": scheme, "sql": text}))
    else:
        print(text, end="")
    return exits.OK
