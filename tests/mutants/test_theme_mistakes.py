"""What the suite's themes of faults are for: each of these mistakes was once ours, or nearly, and one of them finds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from .spoiling import SUITE, Mutant, must_be_clean, must_be_found

MEMORY = SUITE
LEFT = """            book = space.books.get(name)
            if book is None:
                return False
"""
AT_ONCE = """                if (left := started + within - self.driver.now()) <= 0:
                    raise
                again = await self.leaving"""
WAKES = "            self.store.wake_waiters()\n"
WAKES_AGAIN = (
    "            self.store.wake_waiters()  # again: one may have begun to wait in the moment after the first time\n"
)
SQLITE = "tests/conformance/test_sqlite.py::TestSqlite::"

FOUND = "tests/simulation/test_found_by_simulation.py::test_"
TWICE = "tests/simulation/test_left_twice.py::test_"
OVERTAKEN = "who_is_overtaken_by_the_other_who_found_it_gone_says_so_or_what_was_true"
PUT_OUT = "tests/simulation/test_consul_put_out.py::test_"

MUTANTS = [
    # ---- found by the simulator
    Mutant(
        "etcd: entered on one lease, kept alive by another",
        "stores/etcd/store.py",
        (("entry.moving = sight.inside.lease != session.lease", "entry.moving = False"),),
        FOUND + "who_entered_on_a_lease_that_it_has_given_up_is_moved_to_the_one_that_it_keeps",
    ),
    Mutant(
        "etcd: what is just being claimed again is lost",
        "stores/etcd/renewing.py",
        (("entry is not None and entry.claiming:", "False:"),),
        FOUND + "a_lease_that_is_downgraded_again_since_an_answer_was_lost_is_not_told_that_it_is_lost",
    ),
    Mutant(
        "Consul: what was overdue is put out, whatever its owner has claimed since",
        "stores/consul/keeper.py",
        ((", overdue=True)", ")"),),
        FOUND + "who_is_let_in_while_its_place_in_line_runs_out_is_not_put_out_by_its_own_store",
    ),
    Mutant(
        "Consul: what another asking has moved to its session is somebody else's",
        "stores/consul/claiming.py",
        (
            (
                "        self._mine: Record | None = None\n        self._former: frozenset[str] = frozenset()\n",
                "        self._mine = store.keeper.records.get(claim.holder)\n"
                "        self._former = frozenset([self._mine.session.id]) if self._mine else frozenset()\n",
            ),
            ("        mine = store.keeper.records.get(claim.holder)\n", "        mine = self._mine\n"),
            (
                "        elif mine is not None:\n            self._mine = mine\n",
                "        elif mine is not None and mine.token < 0:\n",
            ),
        ),
        TWICE + "both_are_told_that_it_is_still_theirs_and_nobody_else_gets_in[consul]",
    ),
    Mutant(
        "etcd: what another asking has found gone is told of as a token 0",
        "stores/etcd/store.py",
        (
            (
                "            entry.token, entry.created = token, created  # whatever they have made of it since this was sent\n",
                "            token = entry.token\n",
            ),
        ),
        TWICE + OVERTAKEN + "[answered before-etcd-_wire-transact]",
    ),
    Mutant(
        "etcd: what another asking has found gone is brought back",
        "stores/etcd/store.py",
        (("            if entry.token != token:\n", "            if False:\n"),),
        TWICE + OVERTAKEN + "[asked after-etcd-_sessions-open]",
    ),
    Mutant(
        "Redlock: what another asking has found gone is told of as a token 0",
        "stores/redlock/store.py",
        (("        if attempt.token != token:  #", "        token = attempt.token\n        if False:  #"),),
        TWICE + OVERTAKEN + "[answered before-redlock--_ask]",
    ),
    Mutant(
        "what is gone when less than the shortest ttl is left is a misuse",
        "leaving.py",
        (("            if left >= self._store.traits.min_ttl:\n", "            if left > 0:\n"),),
        TWICE + "what_is_gone_when_less_than_the_shortest_ttl_is_left_is_no_misuse",
    ),
    # ---- found by signal handlers that raise
    Mutant(
        "etcd: a downgrade that was interrupted when etcd had agreed is believed not to have begun",
        "stores/etcd/store.py",
        (
            (
                "            if not same:\n                if self._keys",
                "            entry.moving = False\n            if not same:\n                if self._keys",
            ),
        ),
        "tests/stores/etcd/test_interrupted.py",
    ),
    # ---- found by reading what was mended
    Mutant(
        "Consul: a renewal brings back what is being put out",
        "stores/consul/keeper.py",
        (("            return not mine.leaving", "            return True"),),
        PUT_OUT + "a_renewal_that_is_answered_while_its_lease_is_being_put_out_says_that_it_is_lost",
    ),
    Mutant(
        "Consul: a renewal does not wait until it is decided who is put out",
        "stores/consul/keeper.py",
        (
            (
                "        with self._mutex:\n            if not mine.leaving:\n",
                "        if True:\n            if not mine.leaving:\n",
            ),
        ),
        PUT_OUT + "a_renewal_that_comes_while_it_is_decided_to_put_out_comes_before_or_after",
    ),
    Mutant(
        "Consul: who is put out is decided while others renew",
        "stores/consul/keeper.py",
        (
            (
                "        with self._mutex:\n            if overdue and self.in_time(mine):\n",
                "        if True:\n            if overdue and self.in_time(mine):\n",
            ),
        ),
        PUT_OUT + "a_renewal_that_comes_while_it_is_decided_to_put_out_comes_before_or_after",
    ),
    Mutant(
        "Consul: that a request to put out was not answered is forgotten",
        "stores/consul/claiming.py",
        (("(mine.leaving or mine.deadline <= self._sent)", "mine.deadline <= self._sent"),),
        PUT_OUT + "an_unanswered_request_to_put_out_does_not_hit_what_its_owner_has_claimed_since",
    ),
    Mutant(
        "Consul: what was overdue is put out again, though its owner has claimed anew",
        "stores/consul/keeper.py",
        (("return known is not mine or (mine", "return (mine"),),
        PUT_OUT + "an_unanswered_request_to_put_out_does_not_hit_what_its_owner_has_claimed_since",
    ),
    # ---- lost answers
    Mutant(
        "a release that is not repeated at once",
        "engine.py",
        ((AT_ONCE, "                raise\n                left = 0.0\n                again = await self.leaving"),),
        MEMORY + "test_others_come_and_go_before_a_lost_answer_is_asked_for_again[threads-release-request lost]",
    ),
    Mutant(
        "a claim that is not repeated when its answer was lost",
        "engine.py",
        (
            (
                "                if left <= 0:\n                    raise\n",
                "                raise\n",
            ),
        ),
        MEMORY + "test_others_come_and_go_before_a_lost_answer_is_asked_for_again[threads-claim-answer lost]",
    ),
    Mutant(
        "a repeated claim that is a second one",
        "stores/memory.py",
        (
            (
                "entry = book.inside.get(claim.holder)\n        if entry is not None:  # re",
                "entry = None\n        if entry is not None:  # re",
            ),
        ),
        MEMORY + "test_a_claim_that_is_inside_may_be_repeated_and_keeps_its_token",
    ),
    # ---- closing
    Mutant(
        "a close that wakes nobody",
        "engine.py",
        ((WAKES, ""), (WAKES_AGAIN, "")),
        MEMORY + "test_closing_wakes_whoever_waits_and_takes_them_from_the_line[threads]",
    ),
    Mutant(
        "a close that wakes only who waits already",
        "engine.py",
        ((WAKES_AGAIN, ""),),
        MEMORY + "test_closing_wakes_also_whoever_begins_to_watch_in_that_moment[threads]",
    ),
    Mutant(
        "a close that does not wait for who watches",
        "engine.py",
        (("            self._under_way[me] = False  #", "            str(me)  #"),),
        MEMORY + "test_closing_wakes_also_whoever_begins_to_watch_in_that_moment[asyncio]",
    ),
    Mutant(
        "a network that fails when it is the end that is told as its trouble",
        "electing.py",
        (("        engine.open_store()  # if", "        str(engine)  # if"),),
        "tests/test_recipes.py::test_who_watches_a_connection_that_is_closed_is_told_that_and_not_of_the_store",
    ),
    Mutant(
        "a closed connection that still looks",
        "engine.py",
        (('            raise Misuse("this connection was closed: connect() again")\n', "            pass\n"),),
        MEMORY + "test_what_was_closed_refuses_to_be_used[threads-inspect]",
    ),
    # ---- abandoned leases
    Mutant(
        "a lease that nobody has is forgotten without a release",
        "lease.py",
        (("        engine._dropped(self, told, over)\n", ""),),
        MEMORY + "test_a_lease_that_nobody_references_is_let_go_and_somebody_is_told[threads]",
    ),
    Mutant(
        "a lease that nobody has is let go without a word",
        "lease.py",
        (("            warnings.warn(what, ResourceWarning, source=self, stacklevel=2)\n", "            pass\n"),),
        MEMORY + "test_a_lease_that_nobody_references_is_let_go_and_somebody_is_told[asyncio]",
    ),
    Mutant(
        "a lease that nobody has is in nobody's hands for a moment",
        "renewal.py",
        (
            (
                "                if not dropped.over and dropped.stay is None:\n"
                "                    self._leaving.owe(dropped.owed())\n",
                "",
            ),
            (
                "        self._leaving.go_on()\n",
                "            self._leaving.owe(dropped.owed())\n        self._leaving.go_on()\n",
            ),
        ),
        "tests/test_dropped.py::test_a_lease_that_is_dropped_while_everything_is_closed_is_released_all_the_same",
    ),
    # ---- interrupts
    Mutant(
        "only errors are cleaned up after, not interruptions",
        "engine.py",
        (
            (
                "        except BaseException as error:\n            if claim.holder not in self._under_way:  # we",
                "        except Exception as error:\n            if claim.holder not in self._under_way:  # we",
            ),
        ),
        MEMORY + "test_interrupted_at_any_line_nothing_is_left_and_nothing_is_stuck[threads-acquire and release]",
    ),
    Mutant(
        "a mutex that is taken and given back in three lines",
        "stores/memory.py",
        (
            (
                "        with space.lock:\n" + LEFT,
                "        space.lock.acquire()\n        space.lock.locked()\n        space.lock.release()\n"
                "        with space.lock:\n" + LEFT,
            ),
        ),
        MEMORY + "test_interrupted_at_any_line_nothing_is_left_and_nothing_is_stuck[threads-with]",
    ),
    # ---- isolation
    Mutant(
        "one doubt makes all doubtful",
        "renewal.py",
        (
            (
                "            self._confirm(answered, sent)\n",
                "            if any(isinstance(one, Unavailable) for _, one in answered):\n"
                '                answered = [(lease, Unavailable("all")) for lease, _ in answered]\n'
                "            self._confirm(answered, sent)\n",
            ),
        ),
        "tests/test_renewal.py::test_what_is_unknown_of_one_lease_touches_no_other",
    ),
    Mutant(
        "a doubt is a loss",
        "renewal.py",
        (
            (
                "                if isinstance(grant, Unavailable):\n                    continue\n",
                "                if isinstance(grant, Unavailable):\n                    grant = None\n",
            ),
        ),
        MEMORY + "test_one_that_was_in_doubt_for_a_moment_is_kept[threads]",
    ),
    Mutant(
        "callbacks that may end the renewer",
        "events.py",
        (
            (
                "            report(error, self._what)\n        return True",
                "            report(error, self._what)\n        return isinstance(error, Exception)",
            ),
        ),
        MEMORY + "test_no_callback_and_no_subscriber_ends_renewal[SystemExit-threads]",
    ),
    Mutant(
        "a renewer that stays away when it was cancelled",
        "renewal.py",
        (
            (
                "            needed = not self._closed and self._bell is bell and any(self._all())",
                "            needed = False",
            ),
        ),
        MEMORY + "test_cancelling_every_task_does_not_end_renewal[asyncio]",
    ),
    # ---- forks
    Mutant(
        "a child of multiprocessing that is not told of its end",
        "lifecycle.py",
        (("    Finalize(None, _exit, exitpriority=0)\n", "    str(Finalize)\n"),),
        SQLITE + "test_a_child_of_multiprocessing_gives_back_what_it_acquired_itself[threads]",
    ),
    # ---- loops
    Mutant(
        "what acquire returns is no coroutine",
        "aio.py",
        (
            ("class Acquiring(Coroutine[Any, Any, M], AsyncExits):", "class Acquiring(Generic[M], AsyncExits):"),
            ("    def throw(self, *error: Any)", "    def thrown(self, *error: Any)"),
        ),
        MEMORY + "test_what_acquire_returns_may_be_made_a_task[asyncio]",
    ),
    # ---- oneself
    Mutant(
        "a leader that waits for itself",
        "recipes.py",
        (
            (
                'note=valid_note(address, "an election\'s address"), alone=True)',
                'note=valid_note(address, "an election\'s address"))',
            ),
        ),
        MEMORY + "test_one_who_would_wait_for_oneself_is_refused_at_once[threads-a leader that stands]",
    ),
    Mutant(
        "a writer that waits for itself",
        "recipes.py",
        (
            (
                "read._replace(units=rule.EVERYBODY, reads=False, alone=True)",
                "read._replace(units=rule.EVERYBODY, reads=False)",
            ),
        ),
        MEMORY + "test_one_who_would_wait_for_oneself_is_refused_at_once[threads-a writer that writes]",
    ),
]


@pytest.mark.timeout(600)
def test_without_a_mistake_nothing_is_found(source: Path) -> None:
    must_be_clean(MUTANTS, source)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("mutant", [pytest.param(mutant, id=mutant.what) for mutant in MUTANTS])
def test_a_mistake_is_found(mutant: Mutant, source: Path) -> None:
    must_be_found(mutant, source)
