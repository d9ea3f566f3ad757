"""Mistakes in what is told of locks, and in what is advised from it: each is noticed by a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..mutants.spoiling import Mutant, must_be_clean, must_be_found

ADVICE = "tests/cli/test_advise_ttl.py::"
STORY = "tests/cli/test_story.py::"
BOARD = "tests/dashboard/test_board.py::"
TRACES = "tests/observe/test_opentelemetry.py::"

MUTANTS = [
    # ---- advise ttl
    Mutant(
        "a ttl of twice the longest delay",
        "advice/ttl.py",
        (("FACTOR = 3\n", "FACTOR = 2\n"),),
        ADVICE + "test_late_renewals_ask_for_a_longer_ttl_by_arithmetic",
    ),
    Mutant(
        "a delay that counts from the whole ttl",
        "advice/ttl.py",
        (("    due = ttl * 2 / 3\n", "    due = ttl\n"),),
        ADVICE + "test_late_renewals_ask_for_a_longer_ttl_by_arithmetic",
    ),
    Mutant(
        "the best margin taken for the worst",
        "advice/observed.py",
        (("            if number > 0:\n", "            if number == self.number:\n"),),
        ADVICE + "test_late_renewals_ask_for_a_longer_ttl_by_arithmetic",
    ),
    Mutant(
        "a bucket's bound is believed though none was late",
        "advice/ttl.py",
        (("by_count = ttl / 3 if", "by_count = ttl if"),),
        ADVICE + "test_renewals_in_time_leave_the_ttl_as_it_is",
    ),
    Mutant(
        "late renewals are not counted as late",
        "advice/ttl.py",
        (("if not (seen.late or seen.failed", "if not (seen.failed"),),
        ADVICE + "test_late_renewals_ask_for_a_longer_ttl_by_arithmetic",
    ),
    Mutant(
        "a loss changes nothing",
        "advice/ttl.py",
        (("    delay = ttl if seen.losses else min", "    delay = min"),),
        ADVICE + "test_a_loss_says_to_look_for_its_reason_first",
    ),
    Mutant(
        "an estimate that is told as a fact",
        "advice/ttl.py",
        (("    estimated = ttl is None\n", "    estimated = False\n"),),
        ADVICE + "test_a_ttl_that_was_not_said_is_estimated_and_that_is_said",
    ),
    Mutant(
        "much is concluded from little",
        "advice/ttl.py",
        (("_ENOUGH = 20", "_ENOUGH = 1"),),
        ADVICE + "test_few_renewals_are_called_few_and_none_are_no_reason",
    ),
    Mutant(
        "the one longest hold decides",
        "advice/ttl.py",
        (("seen.holds.at_most(0.999)\n        unrenewed", "seen.holds.at_most(1.0)\n        unrenewed"),),
        ADVICE + "test_what_is_not_renewed_has_twice_its_longest_hold",
    ),
    Mutant(
        "all names are one",
        "advice/observed.py",
        (('if one[1].get("lock_name") in wanted]', 'if one[1].get("lock_name")]'),),
        ADVICE + "test_one_name_is_not_mixed_with_another_and_ids_are_one_name",
    ),
    Mutant(
        "ids that are not cut",
        "advice/observed.py",
        (
            (
                "    wanted = {name, template(name), Names()(name)}  # the last: as our own exporters call it\n",
                "    wanted = {name}\n",
            ),
        ),
        ADVICE + "test_one_name_is_not_mixed_with_another_and_ids_are_one_name",
    ),
    Mutant(
        "a password in what is told of an exporter",
        "advice/observed.py",
        (('raise Unavailable(f"{redacted(url)} does', 'raise Unavailable(f"{url} does'),),
        ADVICE + "test_an_exporter_is_asked_and_one_that_is_away_is_named_without_its_password",
    ),
    Mutant(
        "a number that is none is believed",
        "advice/observed.py",
        (
            (
                "type(value) in (int, float) and 0 <= value < _INFINITE",
                "type(value) in (int, float) or value == _INFINITE",
            ),
        ),
        ADVICE + "test_numbers_that_are_none_are_passed_over",
    ),
    Mutant(
        "a hold that was looked at now and then has lasted until it was last seen",
        "advice/observed.py",
        (("yield max(seconds, at - begun.pop(key, at)) if key else seconds", "yield seconds"),),
        ADVICE + "test_of_a_hold_that_was_looked_at_now_and_then_the_longest_counts_that_it_can_have_been",
    ),
    Mutant(
        "a second that has begun is over",
        "advice/observed.py",
        (('.timestamp() + (event == "over")', ".timestamp()"),),
        ADVICE + "test_of_a_hold_that_was_looked_at_now_and_then_the_longest_counts_that_it_can_have_been",
    ),
    # ---- elections
    Mutant(
        "a candidate is a waiter like any other",
        "engine.py",
        (("Candidacy if alone and capacity == 1 else Claim,", "Claim,"),),
        "tests/observe/test_prometheus.py::test_a_leader_and_who_stands_by_are_no_holder_and_no_waiter_of_a_mutex",
    ),
    Mutant(
        "a candidate starves, as the page has it",
        "dashboard/board.py",
        (("    if led:  # whoever", "    if not told and led and stuck:  # whoever"),),
        BOARD + "test_a_leader_leads_and_a_candidate_stands_by_for_as_long_as_the_leader_lives",
    ),
    Mutant(
        "whoever has a note leads",
        "dashboard/board.py",
        (("held.note and not held.note.startswith(_NO_ADDRESS)", "held.note"),),
        BOARD + "test_a_leader_leads_and_a_candidate_stands_by_for_as_long_as_the_leader_lives",
    ),
    # ---- what is seen of holders
    Mutant(
        "what an entry in SQLite asked for is not written down",
        "stores/sqlite/store.py",
        (("token, now, now + ttl, note, ttl)", "token, now, now + ttl, note, None)"),),
        STORY + "test_what_an_older_holdfast_wrote_tells_no_ttl",
    ),
    Mutant(
        "a store that cannot tell is taken for one whose holder is late",
        "cli/story.py",
        (("    if not one.ttl:\n", "    if one.ttl < 0:\n"),),
        STORY + "test_a_store_that_cannot_tell_says_so",
    ),
    Mutant(
        "a page that was away shows ghosts",
        "dashboard/board.py",
        (("            version = 0 if version < self._forgotten else version\n", ""),),
        BOARD + "test_a_page_that_was_away_while_too_many_went_is_told_all_anew",
    ),
    Mutant(
        "a wait goes on though it was given up",
        "dashboard/board.py",
        (("abs(one.age - (age + passed)) > _SLACK", "False"),),
        BOARD + "test_whoever_joins_the_line_anew_has_not_waited_since_the_first_time",
    ),
    Mutant(
        "a history that cannot be kept is not to be seen either",
        "dashboard/history.py",
        (
            (
                "        except sqlite3.Error as error:\n            if not",
                "        except KeyError as error:\n            if not",
            ),
        ),
        BOARD + "test_a_file_that_cannot_be_written_costs_the_file_and_is_caught_up_with",
    ),
    Mutant(
        "what was not kept in time never is",
        "dashboard/history.py",
        (("            del self._unkept[:-MOST]\n", "            self._unkept.clear()\n"),),
        BOARD + "test_a_file_that_cannot_be_written_costs_the_file_and_is_caught_up_with",
    ),
    Mutant(
        "the log says that somebody was put out who was gone",
        "dashboard/app.py",
        (
            (
                'became = "was put out" if past is not None else "was gone already, and nobody was put out"',
                'became = "was put out"',
            ),
        ),
        "tests/dashboard/test_http.py::test_an_eviction_wants_the_name_typed_and_the_token_that_was_seen",
    ),
    Mutant(
        "the log says that somebody was perhaps put out of what is no lock",
        "dashboard/app.py",
        (("        valid_name(name)  # else", "        # else"),),
        "tests/dashboard/test_http.py::test_of_a_name_that_no_lock_can_have_nobody_was_perhaps_put_out",
    ),
    Mutant(
        "everybody who tells something waits for a file that cannot be written",
        "dashboard/history.py",
        ((" or (self.trouble and time.monotonic() < self._again)", ""),),
        BOARD + "test_a_file_that_cannot_be_written_is_not_waited_for_by_everybody_who_tells_something",
    ),
    Mutant(
        "one event with an odd letter costs all that are told with it",
        "observe/dashboard.py",
        (("detail=printable(event.detail)", "detail=event.detail"),),
        "tests/dashboard/test_told.py::test_an_event_with_words_that_fit_no_message_costs_no_other_event",
    ),
    Mutant(
        "who has logged out looks on",
        "dashboard/app.py",
        (("if not self.access.may_look(request):  # logged out", "if False:  # logged out"),),
        "tests/dashboard/test_http.py::test_who_has_logged_out_is_told_nothing_more",
    ),
    Mutant(
        "each grave is looked for on its own",
        "dashboard/board.py",
        (
            (
                "                self._bury(key)\n",
                "                self._bury(key)\n                self._forget_old_graves()\n",
            ),
        ),
        BOARD + "test_many_that_go_at_once_are_buried_in_one_go",
    ),
    # ---- the context of a trace
    Mutant(
        "a context that is written though nobody asked for it",
        "observe/opentelemetry.py",
        (
            (
                "        if not self._context:\n            return",
                "        if not isinstance(locks, Hook):\n            return",
            ),
        ),
        TRACES + "test_only_a_traceparent_is_written_and_only_if_it_was_asked_for",
    ),
    Mutant(
        "a context in the place of a leader's address",
        "engine.py",
        (("not note and not (alone and capacity == 1):", "not note:"),),
        TRACES + "test_a_leaders_address_and_what_is_kept_have_their_own_notes",
    ),
    Mutant(
        "an observer that fails fails the lock",
        "events.py",
        (('            report(error, "what a claim carries")\n            return ""\n', "            raise\n"),),
        TRACES + "test_a_context_that_cannot_be_had_is_no_reason_to_get_no_lock[raises]",
    ),
    Mutant(
        "a note that nobody looks at before it is written",
        "events.py",
        (
            (
                'return valid_note(self.carry() if self.carry is not None else "", "a note")',
                'return self.carry() if self.carry is not None else valid_note("", "")',
            ),
        ),
        TRACES + "test_a_context_that_cannot_be_had_is_no_reason_to_get_no_lock[prints]",
    ),
    Mutant(
        "a look that fails fails the lock",
        "waiting.py",
        (
            (
                '    except HoldfastError:\n        return ""\n',
                '    except ZeroDivisionError:\n        return ""\n',
            ),
        ),
        TRACES + "test_a_look_that_fails_costs_the_link_and_not_the_lock",
    ),
    Mutant(
        "nobody looks at what those inside carry",
        "waiting.py",
        (('seen = "" if engine.hook.carry is None else', 'seen = "" if engine.hook.carry is not None else'),),
        TRACES + "test_a_wait_links_to_a_holder_in_another_process",
    ),
    Mutant(
        "a context that goes on after its end",
        "observe/opentelemetry.py",
        (("            locks.carry = None\n", ""),),
        TRACES + "test_it_ends_when_it_is_told_to_and_is_asked_for_when_one_connects",
    ),
]


@pytest.mark.timeout(600)
def test_without_a_mistake_nothing_is_found(source: Path) -> None:
    must_be_clean(MUTANTS, source)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("mutant", [pytest.param(mutant, id=mutant.what) for mutant in MUTANTS])
def test_a_mistake_is_found(mutant: Mutant, source: Path) -> None:
    must_be_found(mutant, source)
