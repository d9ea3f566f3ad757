"""`holdfast migrate`: what a SQL store creates in its database, for those whose application may not, and whom to grant what."""

from __future__ import annotations

from importlib import import_module

from ..connecting import BUILT_IN, resolve
from ..errors import Misuse
from ..secret import Secret, plausible, redacted
from . import exits
from .options import Options, Usage


def migrate(options: Options) -> int:
    if options.flag("sql") == options.flag("acl"):
        raise Usage(
            "say --sql for the statements that create, or --acl for those that grant: it prints them, and a person decides",
            "migrate",
        )
    url = resolve(options.get("url"))
    plausible(url)
    kind, text = ("sql", _sql(url)) if options.flag("sql") else ("acl", _acl(url))
    if options.flag("json"):
        import json

        print(json.dumps({"scheme": url.partition("://")[0], kind: text}))
    else:
        print(text, end="")
    return exits.OK


def _sql(url: Secret) -> str:
    scheme = url.partition("://")[0]
    # A store that creates something in a database has a function schema(url) -> str beside its open_store.
    schema = getattr(import_module(BUILT_IN[scheme]), "schema", None) if scheme in BUILT_IN else None
    if schema is None:
        raise Misuse(f"{redacted(url)!r} is no store that creates a schema in a database: name one with --url")
    text: str = schema(url.plain)
    return text


def _acl(url: Secret) -> str:
    from .grants import of

    text = of(url.plain)
    if text is None:
        raise Misuse(f"{redacted(url)!r} is no store with users of its own: its file's permissions are all there is")
    return text
