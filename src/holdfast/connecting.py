"""From a URL to a connected store."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from importlib import import_module

from . import events
from .claim import valid_note
from .drivers.base import Driver
from .engine import Engine
from .errors import Misuse, Unavailable
from .observe import Observers, found
from .secret import Secret, plausible, redacted
from .stores.base import Store

ENTRY_POINTS = "holdfast.stores"
WITHHELD = "withheld"  # stands in for HOLDFAST_URL in a command that was not given it
_HALF = re.compile("[\ud800-\udfff]")  # what Python makes of a byte that is no UTF-8
_told: set[str] = set()  # the embedded files whose path was logged

Opener = Callable[[str, Driver], Store]

# The built-in ones are listed here rather than as entry points: reading those costs more than importing holdfast.
BUILT_IN = {
    "memory": "holdfast.stores.memory",
    "sqlite": "holdfast.stores.sqlite",
    "redis": "holdfast.stores.redis",
    "rediss": "holdfast.stores.redis",
    "unix": "holdfast.stores.redis",
    "redis+sentinel": "holdfast.stores.redis",
    "rediss+sentinel": "holdfast.stores.redis",
    "redis+cluster": "holdfast.stores.redis",
    "rediss+cluster": "holdfast.stores.redis",
    "redlock": "holdfast.stores.redlock",
    "redlocks": "holdfast.stores.redlock",
    "etcd": "holdfast.stores.etcd",
    "etcds": "holdfast.stores.etcd",
    "zookeeper": "holdfast.stores.zookeeper",
    "zookeepers": "holdfast.stores.zookeeper",
    "consul": "holdfast.stores.consul",
    "consuls": "holdfast.stores.consul",
    "postgresql": "holdfast.stores.postgresql",
    "postgres": "holdfast.stores.postgresql",
    "mysql": "holdfast.stores.mysql",
    "mariadb": "holdfast.stores.mysql",
}


def open_engine(
    url: str | None, driver: Driver, label: str = "", observe: Observers | None = None, also: str | None = None
) -> Engine:
    """Find the store's opener by the scheme of its URL, and open it; and a second one `also`."""
    _refuse_eventlet()
    target = resolve(url)
    label = valid_note(label, "a label")  # before anything is opened
    observers = found(observe)
    store = open_store(target, driver)
    if also is not None:
        store = _both(store, resolve(also), driver)
    engine = Engine(store, driver, label)
    engine.where = redacted(target).partition("?")[0]
    engine.hook.subscribe(_log, events.LOGGED)
    for observer in observers:
        observer(engine.hook)
    return engine


def _refuse_eventlet() -> None:
    """Its sockets are not Python's, and there is no select.poll() any more: a store would fail in the middle of something."""
    patcher = sys.modules.get("eventlet.patcher")
    if patcher is not None and any(patcher.is_monkey_patched(module) for module in ("socket", "select", "thread")):
        raise Misuse(
            "eventlet's monkey_patch() has replaced sockets or threads, and holdfast does not work with those: "
            "use gevent, threads or asyncio, or do not patch this process"
        )


def open_store(url: Secret, driver: Driver) -> Store:
    _check_text(url)
    try:
        return opener(url)(url.plain, driver)
    except Misuse as error:
        # Without the frames in which the URL was taken apart: their variables are the password, and are recorded by some.
        raise error.with_traceback(None) from None


def _check_text(url: Secret) -> None:
    if _HALF.search(url.plain) and not url.plain.startswith("sqlite:"):  # a file may be called anything
        raise Misuse("a store's URL has bytes in it that are not UTF-8, in its password perhaps: say it in UTF-8")


def _both(new: Store, also: Secret, driver: Driver) -> Store:
    """Imported when it is asked for: nobody else pays for it."""
    from .stores.also import open_old
    from .stores.also.another import Another
    from .stores.also.both import Both

    _check_text(also)
    try:
        old = open_old(also, driver)
    except Misuse as error:
        raise error.with_traceback(None) from None  # as in open_store
    return Both(new, old or Another(open_store(also, driver)), driver)


def _log(event: events.Event) -> None:
    """A loss is never silent, nor is a job that did not run: these are logged even if nobody asked for it."""
    import logging  # late: a healthy process need not pay for the import

    from .observe.log import write

    write(event, logging.getLogger("holdfast"))


def resolve(url: str | None) -> Secret:
    """The URL itself, or HOLDFAST_URL, or the embedded SQLite file in the state folder of this user."""
    if url is None:
        url = os.environ.get("HOLDFAST_URL") or _embedded_url()
    if type(url) is Secret:
        return url
    if type(url) is not str:
        raise Misuse(f"a store's URL must be a str, not {type(url).__name__}")  # not shown: it may hold a password
    return Secret(url)


def _embedded_url() -> str:
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):  # the XDG specification: a relative path is to be ignored
        state = os.path.join(_home(), ".local", "state")
    folder = os.path.join(state, "holdfast")
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise Unavailable(
            f"the folder of the embedded store cannot be made ({error}): name a store with HOLDFAST_URL"
        ) from None
    path = os.path.join(folder, "locks.db")
    if path not in _told:
        _told.add(path)
        # Whoever has not imported it has not asked to be told either, and need not pay for the import.
        if (logging := sys.modules.get("logging")) is not None:
            logging.getLogger("holdfast").info("no store was named: locks are those of this user, in %s", path)
    return file_url(path)


def _home() -> str:
    """Of the user, and not of the process: with another HOME (sudo, cron, a service) it would have other locks, silently."""
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_dir
    except (KeyError, ImportError):
        # A user without an entry, as in some containers; or Windows, where HOME changes nothing.
        return os.path.expanduser("~")


def file_url(path: str) -> str:
    """Of an absolute path: on Windows, `sqlite:///C:/Users/…`."""
    return f"sqlite:///{quote(path.replace(os.sep, '/').lstrip('/'))}"


def quote(path: str) -> str:
    """A path as part of a URL."""
    return path.replace("%", "%25").replace("?", "%3F")


def opener(url: str) -> Opener:
    scheme, colon, _ = url.partition("://")
    if not colon or not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme):
        raise Misuse(f"{redacted(url)!r} is no store's URL: write it like {_meant(url)}")
    if scheme in BUILT_IN:
        plausible(url)
        found: Opener = import_module(BUILT_IN[scheme]).open_store
        return found
    from importlib.metadata import entry_points

    others = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if scheme in others:
        try:
            loaded: Opener = others[scheme].load()
        except ImportError as error:
            raise Misuse(
                f"the store for {scheme!r} is installed but cannot be imported ({error}): install what it needs"
            ) from error
        return loaded
    if scheme == WITHHELD:
        raise Misuse(
            "`holdfast run` keeps HOLDFAST_URL from its command, which asks for it: say holdfast run --pass-url"
        )
    if near := _nearest(scheme, url, {*BUILT_IN, *others}):
        raise Misuse(f"no store is known by the scheme {scheme!r}: did you mean {near}://…?")
    known = ", ".join(sorted({*BUILT_IN, *others}))
    raise Misuse(
        f"no store is known by the scheme {scheme!r} (known: {known}). "
        f"Is the package that brings it installed? It registers in the entry-point group {ENTRY_POINTS!r}"
    )


_USUAL_PORTS = {
    "6379": "redis",
    "2379": "etcd",
    "2181": "zookeeper",
    "8500": "consul",
    "5432": "postgresql",
    "3306": "mysql",
}


# As others call them; those of SQLAlchemy (postgresql+psycopg) are known by what stands before their plus.
_OTHER_WORDS = {
    "valkey": "redis",
    "valkeys": "rediss",
    "zk": "zookeeper",
    "pg": "postgresql",
    "pgsql": "postgresql",
    "file": "sqlite",
    "postgres": "postgresql",
}


def _nearest(scheme: str, url: str, known: set[str]) -> str:
    """The scheme that was probably meant, or nothing."""
    before, plus, _ = scheme.partition("+")
    port = re.search(r":(\d+)/?$", url)
    if scheme in ("http", "https"):
        return _USUAL_PORTS.get(port[1], "") if port else ""
    if scheme in _OTHER_WORDS:
        return _OTHER_WORDS[scheme]
    if plus and before in known:
        return before
    from difflib import get_close_matches  # late: few mistype

    return next(iter(get_close_matches(scheme, known, 1, 0.7)), "")


def _meant(url: str) -> str:
    """What somebody who wrote this probably wanted to write."""
    if host := re.fullmatch(r"([\w.-]+|\[[0-9a-fA-F:]+\]):(\d+)(/\w*)?", url):
        scheme = _USUAL_PORTS.get(host[2])
        return f"{scheme}://{host[0]}" if scheme else f"redis://{host[0]}, with the scheme of the store that it is"
    if url.startswith("/"):
        return file_url(url)
    if file := re.fullmatch(r"sqlite:(/[^/].*)", url):
        return f"sqlite://{file[1]}"
    bare = url.strip("\"' \t\r\n")
    mistyped = re.match(r"([a-z][a-z0-9+.-]*):", bare, re.IGNORECASE)
    if mistyped and (scheme := mistyped[1].lower()) in BUILT_IN:  # nothing of the rest is shown: it may be a password
        without = ", without quotes or spaces around it" if bare != url else ""
        return f"{scheme}://…{without}"
    word = bare.lower()
    if word == "localhost":
        return "redis://localhost, with the scheme of the store that it is"
    if (scheme := _OTHER_WORDS.get(word, word)) in BUILT_IN and scheme not in ("sqlite", "unix"):
        return "memory://" if scheme == "memory" else f"{scheme}://localhost"
    return "sqlite:///path/to/file or memory://"
