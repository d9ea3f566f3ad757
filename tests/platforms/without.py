"""Takes away what another system does not have, before holdfast is imported. A plugin of pytest: `-p tests.platforms.without`.

What Python itself uses of it was imported before, and keeps it: it is holdfast that has to do without.
"""

from __future__ import annotations

import asyncio
import builtins
import errno
import io
import logging.handlers
import mimetypes
import multiprocessing
import multiprocessing.util
import os
import platform
import select
import shutil
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.parse
from functools import partial
from typing import Any

LINUX_ONLY: dict[Any, str] = {
    time: "CLOCK_BOOTTIME CLOCK_TAI",
    os: "eventfd pidfd_open memfd_create splice sched_getaffinity O_PATH getrandom",
    socket: "TCP_USER_TIMEOUT TCP_KEEPIDLE SO_PEERCRED SO_BINDTODEVICE MSG_NOSIGNAL SOCK_CLOEXEC SOCK_NONBLOCK",
    select: "epoll POLLRDHUP",
    signal: "SIGPWR SIGSTKFLT SIGRTMIN SIGRTMAX sigtimedwait",
}
POSIX_ONLY: dict[Any, str] = {
    time: "clock_gettime clock_gettime_ns CLOCK_MONOTONIC CLOCK_REALTIME",
    os: (
        "register_at_fork fork forkpty uname getuid geteuid getgid getegid getpgid setsid killpg fchmod fchown chown lchown "
        "statvfs fstatvfs major minor makedev mkfifo O_NOFOLLOW O_DIRECTORY O_CLOEXEC O_SYNC WNOHANG wait4 "
        "getpgrp setpgid tcgetpgrp tcsetpgrp getloadavg sysconf pread pwrite"
    ),
    socket: "AF_UNIX MSG_DONTWAIT",
    select: "poll POLLIN POLLOUT POLLERR POLLHUP POLLPRI POLLNVAL",
    signal: "SIGHUP SIGQUIT SIGKILL SIGUSR1 SIGUSR2 SIGALRM SIGSTOP SIGCONT SIGTSTP alarm setitimer pthread_sigmask pthread_kill",
}
POSIX_MODULES = ["fcntl", "pwd", "grp", "termios", "tty", "pty", "resource", "syslog"]


def take_away(names: dict[Any, str]) -> None:
    for module, gone in names.items():
        for name in gone.split():
            if hasattr(module, name):  # not every kernel and Python has all of them
                delattr(module, name)


def hide_proc() -> None:
    """Neither it nor what is in it is there."""

    def hidden(real: Any) -> Any:
        def look(path: Any = ".", *args: Any, **kwargs: Any) -> Any:
            if isinstance(path, (str, bytes)) and os.fsdecode(path).startswith("/proc"):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            return real(path, *args, **kwargs)

        return look

    builtins.open = io.open = hidden(open)
    os.open, os.listdir, os.scandir = hidden(os.open), hidden(os.listdir), hidden(os.scandir)
    os.stat, os.readlink = hidden(os.stat), hidden(os.readlink)


def refuse_abstract_sockets() -> None:
    class Plain(socket.socket):
        def bind(self, address: Any) -> None:
            assert not (isinstance(address, (str, bytes)) and address[:1] in ("\0", b"\0")), "only Linux has these"
            super().bind(address)

    socket.socket = Plain  # type: ignore[misc]


def become(system: str) -> None:
    assert "holdfast" not in sys.modules, "too late"
    hide_proc()
    refuse_abstract_sockets()
    take_away(LINUX_ONLY)
    sys.platform = "darwin"
    if system == "windows":
        socket.socketpair = partial(socket.socketpair, socket.AF_UNIX)  # Windows has it, by other means
        take_away(POSIX_ONLY)
        for name in POSIX_MODULES:
            sys.modules[name] = None  # type: ignore[assignment]  # this is how to make it an ImportError
        sys.platform = "win32"


# Whatever of Python is imported late would look for the real Windows.
ALREADY_THERE = (
    asyncio,
    logging.handlers,
    mimetypes,
    multiprocessing.util,
    platform,
    shutil,
    sqlite3,
    ssl,
    subprocess,
    tempfile,
    threading,
    traceback,
    urllib.parse,
)


def pytest_collection() -> None:
    become(os.environ["PLATFORM"])
