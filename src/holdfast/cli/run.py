"""`holdfast run`: a command under a lock, which it never outlives.

    remaining   ttl ………… ttl/3 gone: renewed, and back to ttl
                grace = ttl/4, at most 5 s: nothing was confirmed so long that the end is near: TERM
                margin = ttl/10, at most 1 s: KILL, so that the command is gone before anybody else can be given the lock

A lock that somebody took away (`holdfast release`) is lost at once: TERM then, and KILL `grace` later.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import sys
import time
from typing import TYPE_CHECKING

from ..asking import Ask
from ..claim import valid_name, valid_note
from ..connecting import WITHHELD, open_store, resolve
from ..drivers.base import boot_time, finish
from ..drivers.threads import Threads
from ..engine import CLOSING, Engine
from ..errors import LeaseLost, Misuse, NotAcquired, Unavailable
from ..events import IN_DANGER, RENEWED, Event
from ..recipes import DEFAULT_TTL, lock_ask, rwlock_asks, semaphore_ask
from ..stores.base import Store
from ..sync import Lease
from ..waiting import FIND_OUT
from . import exits
from .child import Child, NotStarted, find
from .options import Options
from .signals import Interrupted, Signals
from .text import shown
from .watch import Watch

if TYPE_CHECKING:
    from .waiting import Telling

OBSERVE = "HOLDFAST_OBSERVE"
MAX_GRACE = 5.0
MAX_MARGIN = 1.0
NEVER = float("inf")


def run(options: Options) -> int:
    try:
        path = find(options.argv[0])
        ask = _ask(options)
    except NotStarted as error:
        return _say(str(error), error.code)
    child = Child(path, options.argv)
    watch = Watch(child.group)  # after the child, which must not keep the pipe open whose closing is the alarm
    signals = Signals()
    try:
        code = _connected(options, ask, child, signals, watch)
    except Interrupted:
        code = exits.SIGNALLED + signals.arrived
    finally:
        child.dismiss()
        watch.close()
    if OBSERVE in os.environ:
        atexit._run_exitfuncs()  # observers have last words
    if signals.die_of:
        # A shell's loop stops only if its command died of SIGINT; $? is 130 either way.
        signal.signal(signals.die_of, signal.SIG_DFL)
        os.kill(os.getpid(), signals.die_of)
    # Everything is given back by now. To close the store and take Python down in good order would cost 5 ms and, if we
    # are the last to use the file, a checkpoint with its fsync; SQLite is made to be left like this. (Nothing is buffered:
    # standard output is the command's, and what we say ourselves goes to standard error by lines.)
    os._exit(code)


def _connected(options: Options, ask: Ask, child: Child, signals: Signals, watch: Watch) -> int:
    label = valid_note(options.get("label", ""), "a label")
    driver, url = Threads(), resolve(options.get("url"))
    # Not through connecting.open_engine, which logs what is alarming: here it is told, once, by us.
    engine = Engine(open_store(url, driver), driver, label)
    if OBSERVE in os.environ:
        _observe(engine)
    store = engine.store
    if store.traits.scope == "process":
        raise Misuse("locks in memory end with this process, and no other sees them: run needs another store")
    try:
        engine.store = waits = signals.around(store)
        telling = _telling(waits, options)
        if telling is not None:
            engine.store = telling.around()
        try:
            try:
                lease = finish(engine.acquire(ask, _timeout(options), Lease))
            finally:
                if telling is not None:
                    telling.erase()  # before anything else is said
        except NotAcquired as error:
            code: int = options.get("code", exits.NOT_ACQUIRED)
            return code if options.flag("quiet") else _say(str(error), code)
        except Misuse as error:
            raise _explained(error, options) from None
        engine.store = store
        return _Run(engine, lease, signals, watch).command(child, _withheld(options))
    except BaseException as error:
        engine.store = store
        # Whatever went wrong, nothing stays locked; but who said not to wait does not wait for a server that is silent.
        finish(engine.close(FIND_OUT if isinstance(error, Unavailable) else CLOSING))
        raise


def _observe(engine: Engine) -> None:
    """Whoever cannot observe keeps no command from running."""
    from ..observe import found

    try:
        for observer in found(None):
            observer(engine.hook)
    except Exception as error:
        _say(f"{error}. Nobody observes this", 0)


def _telling(store: Store, options: Options) -> Telling | None:
    """Only where somebody sits and looks: elsewhere it is not even imported."""
    if options.flag("quiet") or options.flag("now") or sys.stderr is None or not sys.stderr.isatty():
        return None
    from .waiting import Telling, can_tell

    return Telling(store, sys.stderr) if can_tell(sys.stderr) else None


def _timeout(options: Options) -> float | None:
    wait: float | None = options.get("wait")
    return 0 if options.flag("now") else wait


def _ask(options: Options) -> Ask:
    name, slots = valid_name(options.name), options.get("slots")
    at_least: float = options.get("at_least", 0.0)
    # As in `once`: a crash must not free the job before at_least is over, so the grant lasts that long.
    ttl = max(options.get("ttl", DEFAULT_TTL), at_least)
    if slots is not None:
        ask = semaphore_ask(name, slots, ttl, True, True)
    elif options.flag("shared") or options.flag("exclusive"):
        ask = rwlock_asks(name, ttl, True, True)[options.flag("exclusive")]
    else:
        ask = lock_ask(name, ttl, True, False, True)
    return ask._replace(at_least=at_least)


def _explained(error: Misuse, options: Options) -> Misuse:
    if "in use with readers and writers" in str(error):
        return Misuse(f"{error}. (Beside --shared, who wants {options.name!r} alone says --exclusive)")
    return error


def _withheld(options: Options) -> dict[str, str | None]:
    """The command need not know the store's password, nor the dashboard's token. HOLDFAST_URL is not simply taken away: who asks
    for it would then be given the embedded store, which has other locks, and would not notice."""
    if options.flag("pass_url"):
        return {}
    instead = f"{WITHHELD}://say-pass-url" if "HOLDFAST_URL" in os.environ else None
    return {"HOLDFAST_URL": instead, "HOLDFAST_DASHBOARD_TOKEN": None}


class _Run:
    def __init__(self, engine: Engine, lease: Lease, signals: Signals, watch: Watch) -> None:
        self._engine = engine
        self._lease = lease
        self._signals = signals
        self._watch = watch
        self._grace = min(lease.ttl / 4, MAX_GRACE)
        self._margin = min(lease.ttl / 10, MAX_MARGIN)
        self._deadline = boot_time() + lease.remaining()
        self._ending = False  # TERM was sent, because the lock is lost or nearly so
        self._kill_at = 0.0

    def command(self, child: Child, withheld: dict[str, str | None]) -> int:
        inbox = self._signals.collect()
        if self._signals.arrived:  # before there was anybody to pass it on to
            return self._unused(exits.SIGNALLED + self._signals.arrived)
        lease = self._lease
        self._engine.hook.subscribe(self._renewed, (RENEWED,))
        self._engine.hook.subscribe(_warn, (IN_DANGER,))
        lease.on_lost(lambda _: self._signals.nudge())
        self._watch.until(self._deadline - self._margin)
        try:
            child.start(
                {
                    "HOLDFAST_NAME": lease.name,
                    "HOLDFAST_TOKEN": str(lease.token),
                    "HOLDFAST_EXPIRES_AT": f"{time.time() + lease.remaining():.3f}",
                    "HOLDFAST_OWNER": lease.owner,
                    **withheld,
                }
            )
            code = self._until_it_ends(child, inbox)
        except NotStarted as error:
            return self._unused(_say(str(error), error.code))
        except BaseException:
            child.send(signal.SIGKILL)  # a fault of ours: the lock is about to be given back
            raise
        child.leave_nothing(0.0 if self._ending or not lease.held else self._grace)
        self._watch.until(NEVER)  # the group is gone, and its number may be another's one day
        return self._end(child, code)

    def _unused(self, code: int) -> int:
        """Nothing was run, so nothing is to be kept from running again."""
        self._lease._keep_until = 0.0
        self._lease.release()
        return code

    def _until_it_ends(self, child: Child, inbox: int) -> int:
        poll = select.poll()
        poll.register(inbox, select.POLLIN)
        while child.code is None:
            due = self._mind(child)
            poll.poll(max(due - boot_time(), 0.0) * 1000 + 1)
            self._hear(child)
        return child.code

    def _renewed(self, _: Event) -> None:
        """In the renewer's thread."""
        self._deadline = boot_time() + self._lease.remaining()
        self._watch.until(self._deadline - self._margin)

    def _mind(self, child: Child) -> float:
        """End the command if the lock's end is near; returns when to look again."""
        now = boot_time()
        lost = not self._lease.held
        if not self._ending and (lost or now >= self._deadline - self._grace):
            self._ending = True
            self._kill_at = min(now + self._grace, self._deadline) - self._margin
            child.send(signal.SIGTERM)
            if self._kill_at > now:
                child.send(signal.SIGCONT)  # a stopped command cannot hear TERM; one that is too late must not wake
        if not self._ending:
            return self._deadline - self._grace
        if now >= self._kill_at:
            child.send(signal.SIGKILL)
            return now + 1.0
        return self._kill_at

    def _hear(self, child: Child) -> None:
        for signum in self._signals.read():
            if signum == signal.SIGCHLD:
                if stopped := child.look():
                    self._stop(child, stopped)
            elif signum != signal.SIGCONT or boot_time() < self._deadline:
                child.send(signum)

    def _stop(self, child: Child, signum: int) -> None:
        """Ctrl-Z: the shell must get its prompt back, so we stop too, and renew nothing meanwhile. Say so."""
        left = self._deadline - self._margin - boot_time()
        _say(f"stopped; {self._lease.name!r} is not renewed meanwhile, and after {left:.0f} s the command is killed", 0)
        child.stop_with(signum)
        if boot_time() < self._deadline - self._margin:
            child.send(signal.SIGCONT)

    def _end(self, child: Child, code: int) -> int:
        ended = f"The command ended with {code}" if not self._ending else "The command was ended"
        try:
            self._lease.check()
            there = self._lease.release()
        except LeaseLost as error:
            return _say(f"{error}. {ended}", exits.LOST)
        except Unavailable as error:
            _say(f"could not release {self._lease.name!r}, its ttl will: {error}", 0)
            there = True
        if not there:
            return _say(
                f"lost the lock {self._lease.name!r}: the store no longer had it at the end. {ended}", exits.LOST
            )
        if self._ending:
            message = f"ended the command: the lock {self._lease.name!r} was not renewed in time, and nearly lost"
            return _say(message, exits.LOST)
        if child.signalled == signal.SIGINT and sys.stdin is not None and sys.stdin.isatty():
            self._signals.die_of = signal.SIGINT
        return code


def _warn(event: Event) -> None:
    _say(f"could not renew {event.name!r}, {event.seconds:.1f} s are left: {event.detail}", 0)


def _say(message: str, code: int) -> int:
    print(f"holdfast: {shown(message)}", file=sys.stderr)
    return code
