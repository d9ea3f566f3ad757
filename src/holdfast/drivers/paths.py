"""Paths through folders where all may write and none may remove what is another's, such as /tmp.

There anybody can put a link, or a file of their own, under a name that can be guessed. A kernel may be told to follow no such
link (fs.protected_symlinks on Linux), but it is not asked where a program finds out by itself where a link leads, as SQLite and
os.path.realpath do. So its rule is kept here: only what belongs to this user, to root, or to the folder's owner is used.
"""

from __future__ import annotations

import errno
import os
import stat

_MOST_LINKS = 40  # as Linux has it
_OPEN_TO_ALL = stat.S_ISVTX | stat.S_IWOTH


def resolved(path: str) -> str:
    """As os.path.realpath; PermissionError, with the link's name, if it is one that was planted."""
    if os.name != "posix":
        return os.path.realpath(path)
    real, ahead, links = "/", os.path.join(os.getcwd(), path).split("/")[::-1], 0
    while ahead:
        part = ahead.pop()
        if part == "..":
            real = os.path.dirname(real)
        if part in ("", ".", ".."):
            continue
        here = os.path.join(real, part)
        if not os.path.islink(here):
            real = here
            continue
        if is_planted(here):
            raise PermissionError(errno.EACCES, "a link of another user", here)
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        target = os.readlink(here)
        real = "/" if target.startswith("/") else real
        ahead += target.split("/")[::-1]
    return real


def is_planted(path: str) -> bool:
    """Whether something is there that another user has put into a folder that is open to all."""
    if not hasattr(os, "geteuid"):
        return False
    folder = os.stat(os.path.dirname(path))
    if folder.st_mode & _OPEN_TO_ALL != _OPEN_TO_ALL:
        return False
    try:
        owner = os.lstat(path).st_uid
    except FileNotFoundError:
        return False
    return owner not in (os.geteuid(), folder.st_uid, 0)
