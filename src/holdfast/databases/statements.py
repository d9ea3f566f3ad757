"""The SQL of each dialect, read from its file and put into the words of each driver.

Values are always bound. The only names that become part of a statement are those of the user's own table and columns,
quoted as the dialect quotes identifiers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from ..errors import Misuse

POSTGRESQL, MYSQL, SQLITE = "postgresql", "mysql", "sqlite"
DIALECTS = (POSTGRESQL, MYSQL, SQLITE)


def valid_dialect(dialect: str) -> str:
    if dialect not in DIALECTS:
        raise Misuse(f"there is no dialect {dialect!r}; there are {', '.join(DIALECTS)}")
    return dialect


QMARK, FORMAT, DOLLAR, NAMED = "?", "%s", "$1", ":name"  # how a driver marks the place of a value

_QUOTE = {POSTGRESQL: '"', SQLITE: '"', MYSQL: "`"}
_LONGEST_IDENTIFIER = {POSTGRESQL: 63, MYSQL: 64, SQLITE: 512}  # PostgreSQL cuts a longer one short without an error
_PLACE = re.compile(r":([a-z_]+[0-9]*)\b|\{(\w+)\}")


class Statement(NamedTuple):
    """Text for one driver, and the values in the order in which that text wants them."""

    text: str
    values: tuple[object, ...]
    named: dict[str, object]


@cache
def load(dialect: str, package: str, file: str = "") -> dict[str, str]:
    """The statements of a `.sql` file by name. A comment above `-- name:` belongs to the file, not to a statement."""
    text = (files(package) / (file or f"{dialect}.sql")).read_text(encoding="utf-8")
    found = {}
    for part in text.split("-- name: ")[1:]:
        name, _, body = part.partition("\n")
        lines = [line for line in body.splitlines() if not line.startswith("--")]
        found[name] = "\n".join(lines).strip().rstrip(";")
    return found


def bind(template: str, style: str, values: Mapping[str, object], **slots: str) -> Statement:
    """A template with `:places` for values and `{slots}` for quoted names, in the words of one driver."""
    text, order = _compiled(template, style, tuple(slots.items()) if slots else ())
    if style == NAMED:
        return Statement(text, (), {key: values[key] for key in order})
    return Statement(text, tuple([values[key] for key in order]), {})


@cache
def _compiled(template: str, style: str, slots: tuple[tuple[str, str], ...]) -> tuple[str, tuple[str, ...]]:
    """A slot may hold places for values of its own, so slots are filled first, and its literal text is escaped there."""
    filled = re.sub(r"\{(\w+)\}", lambda match: dict(slots)[match[1]], template) if slots else template
    order: list[str] = []
    pieces: list[str] = []
    end = 0
    for match in _PLACE.finditer(filled):
        if match[1] is None or filled[match.start() - 1] == "\\":  # an escaped colon, inside an identifier
            continue
        pieces.append(_literal(filled[end : match.start()], style))
        pieces.append(_place(match[1], style, order))
        end = match.end()
    pieces.append(_literal(filled[end:], style))
    return "".join(pieces), tuple(order)


def _place(name: str, style: str, order: list[str]) -> str:
    if style in (QMARK, FORMAT):
        order.append(name)
        return style
    if name not in order:
        order.append(name)
    return f"${order.index(name) + 1}" if style == DOLLAR else f":{name}"


def _literal(text: str, style: str) -> str:
    if style == NAMED:
        return text  # SQLAlchemy reads \: as we do, and deals with % itself
    text = text.replace("\\:", ":")
    return text.replace("%", "%%") if style == FORMAT else text


def identifier(dialect: str, name: object) -> str:
    """One name, quoted; exactly as it is written in the catalog."""
    if type(name) is not str or not name or "\0" in name:
        raise Misuse(f"the name of a table or column must be a str that is not empty: {name!r:.80}")
    longest = _LONGEST_IDENTIFIER[dialect]
    if len(name.encode("utf-8", "surrogatepass")) > longest:
        raise Misuse(f"{dialect} knows no names longer than {longest} bytes: {name!r:.80}")
    quote = _QUOTE[dialect]
    return quote + name.replace(quote, quote * 2).replace(":", "\\:") + quote


def table_parts(table: str | tuple[str, ...]) -> tuple[str, ...]:
    """`orders` or `shop.orders`; a tuple says it without a doubt, should a name contain a dot."""
    return table if isinstance(table, tuple) else tuple(str(table).split("."))


def table_name(dialect: str, table: str | tuple[str, ...]) -> str:
    return ".".join(identifier(dialect, part) for part in table_parts(table))


def plain(quoted: str) -> str:
    """A quoted identifier without our escape of the colon: for text that binds no values."""
    return quoted.replace("\\:", ":")
