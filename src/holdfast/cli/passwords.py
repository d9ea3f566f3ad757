"""Where the CLI takes passwords from: a file or the environment, and, with a word of warning, its command line."""

from __future__ import annotations

import os
import stat
import sys

from ..errors import Misuse
from ..secret import has_password
from .options import Options, Usage

_MOST = 65536
_PLACES = (("url", "--url", "--url-file FILE or HOLDFAST_URL"), ("database", "--database", "--database-file FILE"))


def collect(options: Options) -> None:
    """Read the files that were named; warn once of a password that every user of this machine can see with ps."""
    seen = []
    for key, flag, instead in _PLACES:
        url, file = options.get(key), options.get(f"{key}_file")
        if url is not None and file is not None:
            raise Usage(f"{flag} and {flag}-file name the same thing: say one of them", options.command)
        if file is not None:
            options.put(key, _read(file))
        elif url is not None and has_password(url):
            seen.append(f"{flag} holds a password, which all users of this machine can see (ps): use {instead}")
    if seen and not options.flag("quiet"):
        print(f"holdfast: warning: {'; '.join(seen)}", file=sys.stderr)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(_MOST).strip()
    except (OSError, UnicodeError) as error:
        raise Misuse(
            f"the URL in {path!r} cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}"
        ) from None
    if not text or not text.isprintable():  # several lines, or none
        raise Misuse(f"{path!r} must hold one URL, on one line")
    if stat.S_ISREG(mode) and mode & 0o077 and has_password(text):
        print(f"holdfast: warning: others may read {path!r}, which holds a password: chmod 600", file=sys.stderr)
    return text
