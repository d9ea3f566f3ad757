"""Acquire, release, close; who has to wait does so in waiting.py.

Rule 1: whatever interrupts an acquire (time, cancellation, Ctrl-C, a broken store) ends in a release of that claim.
Rule 2: deadlines count from before the request was sent. An answer that took longer than the grant lives is no grant.
Rule 3: a claim is repeated with the same holder, so an answer that was lost on its way is found again.
Rule 4: `timeout` bounds the call, and at most FIND_OUT more is spent on finding out; the rest is done in the background.
"""

from __future__ import annotations

import os
import threading
from typing import TypeVar
from weakref import ref

from . import events
from .asking import Ask, GiveUp
from .claim import LAST_WORDS, ROUND, Candidacy, Claim, Grant, Place, new_holder, printable
from .drivers.base import Bell, Driver
from .drivers.system import host_name, notice_fork
from .errors import HoldfastError, Misuse, NotAcquired, Unavailable
from .events import Hook, contained
from .lease import HELD, LOST, RELEASED, RELEASING, Lease
from .leaving import Leaving, Owed
from .lending import Lending
from .mine import Mine
from .renewal import Dropped, Renewer
from .stores.base import Store
from .waiting import FIND_OUT, in_line

L = TypeVar("L", bound=Lease)
_tuple = tuple.__new__  # a named tuple's own constructor is a function in Python around this

MAX_OWNER = 255
MAX_KNOWN = 1024
CLOSING = 5.0  # so long close() may take, unless told otherwise


class Engine:
    """A connected store, and what this process holds in it."""

    def __init__(self, store: Store, driver: Driver, label: str = "") -> None:
        self.store = store
        self.driver = driver
        self.hook = Hook(store.traits.system)
        self.label = label
        self.where = store.traits.system  # as people know it
        self.mutex = threading.Lock()
        self._kind_of_mutex = threading.Lock  # when we connected; gevent may replace it later
        self.closed = False
        self.exiting = False  # closed, because the process ends
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._whereabouts = f"{host_name()}/{self._process}/"
        self._owners: dict[str, str] = {}
        self.mine = Mine(self.driver, self.mutex)
        # Holders of claims that are made or released just now, and watches; close() waits for them.
        # True: a claim that was sent was not answered.
        self._under_way: dict[str, bool] = {}
        # Of these, those whose claim the store itself repeated: the first one may yet arrive.
        self._doubts: set[str] = set()
        self._telling: dict[str, object] = {}  # of these, the threads that are telling a subscriber something just now
        self._closing: Bell | None = None
        self.leaving = Leaving(self.store, self.driver, self.hook)
        self.renewer = Renewer(self.store, self.driver, self.hook, self.mutex, self.leaving)
        self.lending = Lending(self)
        tell_repeats_to = getattr(self.store, "tell_repeats_to", None)
        if tell_repeats_to is not None:
            tell_repeats_to(self._repeated)

    def forked(self) -> None:
        """In a forked child, which owns nothing: the parent goes on holding what it held."""
        self.lending.forked()
        for lease in (*self.renewer._all(), *self.mine.leases()):
            lease._end(LOST, "it belongs to the process that this one was forked from")
        self.store.forked()
        self._made_anew()

    def _made_anew(self) -> None:
        self.mutex = threading.Lock()
        self._start()

    def _is_forked(self) -> None:
        """Python was not told, as in the workers of uWSGI. Everything here is the parent's: what it holds, its connections,
        and the next nonces, so that two children would ask as one."""
        notice_fork()
        if self._process != os.getpid():  # nobody looks after this engine
            self.forked()

    def _begin_anew(self) -> None:
        """gevent's monkey_patch() came after we connected, as in a worker of gunicorn that was preloaded.

        A mutex from before it stops all greenlets, and not only the one that waits for it: so all of ours are made again.
        """
        if self._under_way or self.renewer.leases() or self.leaving._owed or self.leaving._under_way:
            raise Misuse(
                "gevent's monkey_patch() came after this connection had begun to work: patch first, before a lock is taken"
            )
        self._kind_of_mutex = threading.Lock
        if self.store.traits.scope != "process":  # where others are in there, too
            self.store.forked()
        self._made_anew()

    def owner(self) -> str:
        if threading.Lock is not self._kind_of_mutex:  # first: who is known from before is not to go on with what was
            self._begin_anew()
        who = self.driver.whoami()
        known = self._owners.get(who)  # the same threads and tasks usually ask again
        if known is not None:
            return known
        me = self._whereabouts + who
        if self.label:
            me = f"{me}/{self.label}"
        me = me if me.isprintable() and len(me) <= MAX_OWNER else printable(me)[:MAX_OWNER]
        if len(self._owners) >= MAX_KNOWN:
            self._owners = {}
        self._owners[who] = me
        return me

    def open_store(self) -> Store:
        """For looking and intervening; refused once the connection was closed."""
        if os.getpid() != self._process:
            self._is_forked()
        if self.closed:
            raise Misuse("this connection was closed: connect() again")
        return self.store

    async def watch(self, name: str, token: int, timeout: float) -> None:
        """Until there is another grant than that with `token`, or for so long. close() ends it, and waits for its end."""
        me = new_holder()
        try:
            self._under_way[me] = False  # first: from here on close() knows of us, or we of it
            await self.open_store().watch(name, token, timeout)
        finally:
            self._over(me)

    # ---- acquire

    def _repeated(self, holder: str) -> None:
        """Told by the store, from any thread: it asks for this claim again, and the first one may arrive after all others."""
        self._doubts.add(holder)  # first: whoever ends just now strikes it off, or is not there any more
        if holder not in self._under_way:  # it is inside, and asked for less
            self._doubts.discard(holder)
            with self.mutex:
                mine = tuple(lease for lease in self.renewer._all() if lease._grant.claim.holder == holder)
            for lease in mine:
                lease._strays = True

    async def acquire(self, ask: Ask, timeout: float | None, lease_type: type[L], cancel: GiveUp | None = None) -> L:
        if os.getpid() != self._process:
            self._is_forked()
        if self.closed:
            raise self._closed(ask.name)
        name, ttl, units, capacity, fair, renew, note, at_most, at_least, reentrant, reads, alone, keep, confirm = ask
        if reentrant or reads or alone:
            again = self.mine.again(ask, lease_type)
            if again is not None:
                return again
            if alone and self.lending.names():
                timeout = await self.lending.make_way(name, timeout)
        if keep:
            return self.lending.lend(ask, lease_type) or await self.lending.borrow(ask, timeout, lease_type, cancel)
        if self.hook.carry is not None and not note and not (alone and capacity == 1):  # a leader's note is its address
            note = self.hook.carried()
        lease: L | None = None
        owner = self.owner()
        claim = _tuple(
            Candidacy if alone and capacity == 1 else Claim,
            (name, new_holder(), owner, ttl, units, capacity, fair, timeout is None or timeout > 0, note),
        )
        now = self.driver.now
        started = sent = now()
        answer: Grant | Place | None = None
        try:
            self._under_way[claim.holder] = False
            within = ROUND if timeout is None or timeout >= ROUND - FIND_OUT else timeout + FIND_OUT
            if self.leaving._owed or self.renewer.dropped:
                self._take_up()
            if self.leaving.going and name in self.leaving.going:
                await self.leaving.turn(name, FIND_OUT / 2)
                sent = now()
                within -= sent - started
            try:
                answer = await self.store.claim(claim, within)
            except Unavailable as error:  # once more: the answer may have been lost, and repeating finds it
                self._store_failed("claim", claim, error)
                if self.closed:  # meanwhile: what would be granted now, nobody could give back
                    self._under_way[claim.holder] = True
                    raise self._closed(name) from error
                # A round of its own where the caller has the time: an election of the store's leader takes about that long.
                left = ROUND if timeout is None else min(ROUND, started + timeout + FIND_OUT - now())
                if left <= 0:
                    raise
                self._under_way[claim.holder] = True
                answer = await self.store.claim(claim, left)
            if type(answer) is not Grant and await self.leaving.again(name, min(FIND_OUT / 4, sent + within - now())):
                left = sent + within - now()
                if not claim.queue and left > 0:  # who queues is rung
                    unanswered, self._under_way[claim.holder] = self._under_way[claim.holder], True
                    sent = now()
                    answer = await self.store.claim(claim, left)
                    self._under_way[claim.holder] = unanswered
            if type(answer) is not Grant or now() >= sent + answer.ttl:
                if timeout is None and capacity == 1:
                    self.mine.not_for_itself(claim, self.renewer.leases())
                answer, sent = await in_line(self, claim, answer, timeout, started, cancel)
            lease = lease_type(self, answer, sent)
            lease._by = ref(self.driver.me())
            if at_most is not None or at_least or not renew:
                lease._bound(answer.ttl if not renew else at_most, at_least)
            if not confirm:
                lease._confirm = False
            if self._under_way[claim.holder] or (self._doubts and claim.holder in self._doubts):
                lease._strays = True
            if reentrant or reads or alone:
                self.mine.remember(lease)
            self.renewer.add(lease)
            if events.ACQUIRED in self.hook.by_kind:
                self._tell(claim, events.ACQUIRED, "", answer, sent - started, now() - started)
                if self.closed:  # by a subscriber
                    raise self._closed(name)
            return lease
        except BaseException as error:
            if claim.holder not in self._under_way:  # we are a fork of whoever asked: the claim is that one's
                raise
            try:
                if lease is not None:
                    self._disown(lease)
                # Refused is refused; but what was not answered, or was interrupted, may yet arrive.
                strays = isinstance(error, Unavailable) or self._under_way.get(claim.holder, False)
                strays = strays or claim.holder in self._doubts
                interrupted = answer is None and not isinstance(error, HoldfastError)  # signal handlers raise anything
                # And a grant that came too late may live on in the store for a moment.
                if not isinstance(error, NotAcquired) or claim.queue or strays or type(answer) is Grant:
                    left = FIND_OUT
                    if isinstance(error, GeneratorExit):  # our loop is gone: who is not awaited any more cannot wait
                        left = 0.0
                    elif timeout is not None:  # also for whoever is cancelled: no longer than without
                        left = min(FIND_OUT, started + timeout + FIND_OUT - now())
                    refused = answer is None and isinstance(error, Misuse) and not strays
                    if getattr(self.store, "reached", True):  # else nothing was sent: nobody need wait, also at the end
                        await self.leaving.withdraw(claim, left, unanswered=strays or interrupted, refused=refused)
            except BaseException:  # interrupted in this very moment
                if not self.leaving.owes(claim):
                    self.leaving.later(claim, now() + ttl, unanswered=True)
                raise
            if events.FAILED in self.hook.by_kind and not isinstance(error, NotAcquired):
                why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                with contained("a subscriber"):
                    self.hook.emit(events.FAILED, name, claim.owner, 0, now() - started, why, claim.lock)
            raise
        finally:
            try:
                self._under_way.pop(claim.holder, None)
                if self._doubts:
                    self._doubts.discard(claim.holder)
                if self._closing is not None:
                    self._closing.ring()
            except BaseException:  # interrupted in this very moment
                self._over(claim.holder)
                raise

    def _take_up(self) -> None:
        """What is still to be released, and was left to nobody: those who were at it have ended with their event loop."""
        bell = self.renewer._bell
        if self.renewer.dropped and (bell is None or bell.asleep):
            self.renewer.let_go()
        self.leaving.go_on_if_nobody_does()

    def _tell(
        self, claim: Claim, kind: str, detail: str = "", grant: Grant | None = None, after: float = 0, took: float = 0
    ) -> None:
        """In the middle of a call: a subscriber may close() this connection, which does not wait for its own caller then."""
        token, ttl = (grant.token, grant.ttl) if grant is not None else (0, 0.0)
        self._telling[claim.holder] = self.driver.me()
        try:
            self.hook.emit(kind, claim.name, claim.owner, token, after, detail, claim.lock, took, ttl)
        finally:
            self._telling.pop(claim.holder, None)

    def _store_failed(self, what: str, claim: Claim, error: Exception) -> None:
        if events.STORE_FAILED in self.hook.by_kind:
            self._tell(claim, events.STORE_FAILED, f"{what}: {error}")

    def _over(self, holder: str) -> None:
        self._under_way.pop(holder, None)
        self._doubts.discard(holder)
        if self._closing is not None:
            self._closing.ring()

    def _disown(self, lease: Lease) -> None:
        """It was never handed out: neither renew it nor find it again."""
        lease._state = RELEASED  # first, and whatever interrupts us: it must not be let go a second time
        with self.mutex:
            self.renewer.remove(lease)
            if lease._key is not None:
                self.mine.forget(lease)

    def _dropped(self, lease: Lease, told: bool, over: bool) -> None:
        """Called by the collector, at any moment and in any thread: takes no lock."""
        key = lease._key and lease._key[0]
        where = lease._where()
        lease._failed()
        loss, stay = lease._loss, lease._stay
        dropped = (Dropped(self, lease._grant, key, lease._keep_until, lease._deadline, where, loss, told, over, stay),)
        # All at once: nothing is called here, so no interruption falls in between. Before, it is tried again; after, it is done.
        self.renewer.dropped += dropped
        lease._state = RELEASED
        lease._stay = None
        self.renewer.ring()

    # ---- release

    async def release(self, lease: Lease, within: float = ROUND) -> bool:
        """Leave. False: the store did not have it any more.

        If the store does not answer, that is Unavailable, and the release goes on in the background; it may be repeated.
        """
        if os.getpid() != self._process:
            self._is_forked()
        claim = lease._grant.claim
        if lease._state is RELEASED and lease._key is None:
            return False  # without the mutex: a thread that the end of the interpreter has stopped may have it
        if lease._stay is not None:
            ended = self.lending.give_back(lease)
            return ended if isinstance(ended, bool) else await self.lending.give_up(ended)
        try:
            with self.mutex:
                state = lease._state
                if lease._entries > 1 and (state is HELD or state is LOST):
                    lease._entries -= 1
                    return lease.held
                started = self.driver.now()
                ran_out = state is HELD and started >= lease._deadline
                if ran_out:  # and the renewer has not come round to it: it is over all the same
                    self.renewer.lose(lease)
                elif state is HELD:
                    lease._state = RELEASING
                    self.renewer.remove(lease)
                if lease._key is not None:
                    self.mine.forget(lease)
            if ran_out:
                self.renewer.announce([lease])
                # The store may count a moment longer.
                await self.leaving.withdraw(claim, min(FIND_OUT, within), keep_until=lease._keep_until)
                return False
            if state is RELEASED or state is LOST:
                return False
            if lease._loss is not None:
                lease._loss.over()
            self._under_way[claim.holder] = False
            try:
                if lease._keep_until:
                    there = await self.leaving.leave(claim, lease._keep_until, within)
                elif lease._confirm or lease._strays:  # what is looked for again after this must not come before it
                    there = await self.store.release(claim, within)
                elif self.leaving.post(claim, lease.token, lease._deadline):
                    there = True
                else:
                    there = await self.store.release(claim, within)
            except Unavailable as error:  # at once again, over another connection
                self._store_failed("release", claim, error)
                if (left := started + within - self.driver.now()) <= 0:
                    raise
                again = await self.leaving.leave(claim, lease._keep_until, left)
                # Not there any more: since the first one arrived, as far as anybody can tell. That is no loss.
                there = again or not lease._keep_until
            lease._state = RELEASED
            if (lease._strays or claim.holder in self._doubts) and not lease._keep_until:
                self.leaving.later(claim, self.driver.now() + claim.ttl, unanswered=True, left=True)
        except BaseException as error:
            if lease._state is RELEASING:
                await self._go_on_leaving(lease, claim, at_once=not isinstance(error, (Exception, GeneratorExit)))
            raise
        finally:
            try:
                self._under_way.pop(claim.holder, None)
                if self._doubts:
                    self._doubts.discard(claim.holder)
                if self._closing is not None:
                    self._closing.ring()
            except BaseException:  # interrupted in this very moment
                self._over(claim.holder)
                raise
        if events.RELEASED in self.hook.by_kind:
            self._released(lease)
        return there

    def _released(self, lease: Lease) -> None:
        lease._state = RELEASED
        if events.RELEASED in self.hook.by_kind and not lease._silent:
            claim, token, _ = lease._grant
            held = self.driver.now() - lease._since
            self.hook.emit(events.RELEASED, claim.name, claim.owner, token, held, "", claim.lock)

    async def _go_on_leaving(self, lease: Lease, claim: Claim, at_once: bool) -> None:
        """The release failed, or was interrupted: take it up again if there is a chance, else in the background."""
        left = False
        try:
            self.leaving.disregard(claim)
            with self.mutex:
                self.renewer.remove(lease)
                if lease._key is not None:
                    self.mine.forget(lease)
            if at_once:
                left = await self.leaving.leave_at_once(claim, lease._keep_until, FIND_OUT)
        finally:
            if left:
                self._released(lease)
            else:
                self._hand_over(lease)

    def _hand_over(self, lease: Lease) -> None:
        """The release was not answered, or was interrupted: it goes on in the background."""
        if lease._handed_over:
            return
        lease._handed_over = True
        known = ref(lease)
        claim, token, since, silent = lease._grant.claim, lease.token, lease._since, lease._silent

        def done() -> None:
            if (still := known()) is not None:
                still._state = RELEASED
            if events.RELEASED in self.hook.by_kind and not silent:
                held = self.driver.now() - since
                self.hook.emit(events.RELEASED, claim.name, claim.owner, token, held, lock=claim.lock)

        self.leaving.later(claim, lease._deadline, token=lease.token, keep_until=lease._keep_until, done=done)

    # ---- the end

    def _closed(self, name: str) -> BaseException:
        if self.exiting and threading.current_thread() is not threading.main_thread():
            return SystemExit()  # which ends a thread without a word: it was left behind, and the process ends
        return Misuse(f"cannot acquire {name!r}: this connection was closed; connect() again")

    async def close(self, timeout: float = CLOSING) -> None:
        """Release what is held, stop renewing, disconnect: all of it within `timeout`. What is left ends by its ttl."""
        if self.closed:
            return
        deadline = self.driver.now() + timeout
        self._closing = self.driver.bell()
        self.closed = True
        try:
            self.renewer.close()  # first: what is acquired from now on is refused there, and taken back
            self.store.wake_waiters()
            # Its last words are a part of it too, and may say at once what was not said of each: that a session is over.
            await self.driver.shield(lambda: self._leave_everything(deadline - min(LAST_WORDS, timeout / 5)))
        finally:
            await self.store.close(min(LAST_WORDS, max(deadline - self.driver.now(), 0.0)))
            await self.renewer.gone(deadline)

    def leftovers(self) -> list[Owed]:
        """What this process holds or still has to give back: for whoever releases it when the loop is gone."""
        self.closed = True
        self.renewer.close()
        for lease in self.renewer.leases():
            self._hand_in(lease)
        return self.leaving.forget()

    async def _leave_everything(self, deadline: float) -> None:
        for lease in self.renewer.leases():
            self._hand_in(lease)
        await self.leaving.finish(deadline)
        while self._others_under_way() and self._closing is not None and (left := deadline - self.driver.now()) > 0:
            self.store.wake_waiters()  # again: one may have begun to wait in the moment after the first time
            await self._closing.wait(min(left, 0.1))
        await self.leaving.finish(deadline)  # what those could not take back themselves

    def _others_under_way(self) -> bool:
        """Not counting whoever is calling close(), from within a subscriber."""
        me = self.driver.me()
        return any(self._telling.get(holder) is not me for holder in list(self._under_way))

    def _hand_in(self, lease: Lease) -> None:
        """Out of the renewer's hands, and to be released; unless it has run out by itself."""
        with self.mutex:
            if lease._state is not HELD:
                return
            if lease._key is not None:
                self.mine.forget(lease)
            if self.driver.now() >= lease._deadline:
                self.renewer.lose(lease)
            else:
                lease._state = RELEASING
                self.renewer.remove(lease)
                self._hand_over(lease)
        if lease._state is LOST:
            self.renewer.announce([lease])
        elif lease._loss is not None:
            lease._loss.over()
