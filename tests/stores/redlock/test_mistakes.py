"""The tests can fail: each of these mistakes, made in a copy of the source, is found by the test that is meant to find it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ...mutants.spoiling import Mutant, must_be_found

pytestmark = pytest.mark.server

TROUBLE = "tests/stores/redlock/test_trouble.py::"
LEAVING = "tests/stores/redlock/test_leaving.py::"
BETWEEN = "tests/stores/redis/test_faults_between.py::"
CUT = "test_a_release_whose_answers_were_cut_is_repeated_and_no_loss"
CLOCK = "tests/stores/redis/test_clock.py::"
SILENT = "test_nodes_that_are_silent_for_a_moment_are_waited_for_as_long_as_was_asked"

MUTANTS = [
    Mutant(
        "who has not answered need not let go",
        "stores/redlock/store.py",
        (
            (
                "([at for at, answer in enumerate(answers) if type(answer) is list])",
                "([at for at, answer in enumerate(answers) if type(answer) is not int])",
            ),
        ),
        "tests/simulation/test_redlock_refused.py::test_only_the_node_that_has_not_refused_is_asked_to_let_go",
    ),
    Mutant(
        "who has refused is asked to let go",
        "stores/redlock/store.py",
        (("            spared=refused,\n", ""),),
        "tests/simulation/test_redlock_refused.py::test_only_the_node_that_has_not_refused_is_asked_to_let_go",
    ),
    Mutant(
        "who says no at last is believed to have said so from the first",
        "stores/redlock/store.py",
        (("refusing.intersection_update(", "refusing = set("),),
        LEAVING + "test_a_node_that_refuses_a_higher_proposal_lets_go_of_a_lower_one_that_it_has_accepted[threads]",
    ),
    Mutant(
        "who has not got the claim yet is believed to have let go of it",
        "stores/redlock/polled.py",
        (("        if question.overtaken is not None:\n", "        if False:\n"),),
        LEAVING + "test_no_release_overtakes_a_claim_that_a_node_has_not_answered[True]",
    ),
    Mutant(
        "a second release that is believed to find nothing",
        "stores/redis/store.py",
        (("return bool(reply or twice)", "return bool(reply)"),),
        BETWEEN + "test_a_release_whose_answer_was_cut_is_repeated_and_no_loss",
    ),
    Mutant(
        "the same of a node, in threads",
        "stores/redlock/fan.py",
        (("if answer == 0 and question.leaving and at in self._again:", "if False:"),),
        f"{TROUBLE}{CUT}[threads]",
    ),
    Mutant(
        "the same of a node, in asyncio",
        "stores/redlock/fan.py",
        (("if answer == 0 and question.leaving and at in self._again:", "if False:"),),
        f"{TROUBLE}{CUT}[asyncio]",
    ),
    Mutant(
        "silence is a no",
        "stores/redlock/store.py",
        (("return there is not False", "return bool(there)"),),
        TROUBLE + "test_a_release_is_a_loss_only_if_a_majority_says_so",
    ),
    Mutant(
        "everybody is asked again when one did not know the scripts",
        "stores/redlock/store.py",
        (("if at in ignorant or (answer is None and not leaving) else answer", "if True else answer"),),
        TROUBLE + "test_a_node_that_has_to_learn_the_scripts_first_makes_no_release_a_loss",
    ),
    Mutant(
        "a majority that is given up after a node's share, in threads",
        "stores/redlock/fan.py",
        (("now, now + share, now + max(share, within)", "now, now + share, now + share"),),
        f"{TROUBLE}{SILENT}[threads]",
    ),
    Mutant(
        "a majority that is given up after a node's share, in asyncio",
        "stores/redlock/fan.py",
        (("now, now + share, now + max(share, within)", "now, now + share, now + share"),),
        f"{TROUBLE}{SILENT}[asyncio]",
    ),
    Mutant(
        "who was released once is listed for ever",
        "stores/redlock/store.py",
        (("waited = attempt is None or attempt.waited", "waited = attempt is not None and attempt.waited"),),
        TROUBLE + "test_a_claim_in_line_that_comes_after_its_release_is_not_listed_for_long",
    ),
    Mutant(
        "whatever a node says is an answer",
        "stores/redlock/fan.py",
        ((" if reply == _FOREIGN else nonsense(reply, where)", " if reply == _FOREIGN else reply"),),
        TROUBLE + "test_a_node_that_speaks_nonsense_is_in_trouble_by_itself",
    ),
    Mutant(
        "closing tells nobody once more",
        "stores/redlock/store.py",
        (("self._strays.close(max(within - LAST, 0.0))", "self._strays.close(0.0)"),),
        "tests/stores/redlock/test_leaving.py::test_closing_tells_a_node_once_more_that_did_not_hear_of_a_release",
    ),
    Mutant(
        "a release that one node did not hear is not repeated",
        "stores/redlock/store.py",
        (("            self._strays.add(claim, 0, heard)\n", "            pass\n"),),
        TROUBLE + "test_a_release_that_one_node_did_not_hear_is_told_to_it_again[threads]",
    ),
    Mutant(
        "who tries often has others forgotten",
        "stores/redlock/strays.py",
        (("self._owed[claim.holder] = Stray(", 'self._owed[f"{claim.holder}{token}"] = Stray('),),
        LEAVING + "test_who_tries_again_and_again_makes_nobody_forget_what_others_have_to_take_back[asyncio]",
    ),
    Mutant(
        "a late answer is taken for the answer to another question",
        "stores/redlock/polled.py",
        (("owed.popleft().answered(self, reply)", "owed.pop().answered(self, reply)"),),
        LEAVING + "test_the_last_node_is_not_waited_for_and_its_late_answer_is_heard[threads]",
    ),
    Mutant(
        "closing resets what is still under way, in threads",
        "stores/redlock/fan.py",
        (("            await self.settle(LAST)\n", "            pass\n"),),
        LEAVING + "test_closing_waits_a_moment_for_releases_that_are_still_under_way[threads]",
    ),
    Mutant(
        "closing resets what is still under way, in asyncio",
        "stores/redlock/fan.py",
        (("            await self.settle(LAST)\n", "            pass\n"),),
        LEAVING + "test_closing_waits_a_moment_for_releases_that_are_still_under_way[asyncio]",
    ),
    Mutant(
        "who connects when a majority has agreed is not asked any more",
        "stores/redlock/shared.py",
        (("if reply.round.question.leaving or now < reply.round.ends:", "if reply.round.is_wanted:"),),
        LEAVING + "test_a_node_that_is_slow_to_connect_is_asked_all_the_same[asyncio]",
    ),
    Mutant(
        "who has time left to connect fails with whoever had not",
        "stores/redlock/shared.py",
        (("self._until - _MOMENT <= at < reply.round.ends - _MOMENT and not reply.round.over", "False"),),
        "tests/stores/redlock/test_connecting.py::"
        "test_who_has_more_time_to_connect_than_whoever_began_does_not_fail_with_it",
    ),
    Mutant(
        "what is given back again is given back whatever it is by now",
        "stores/redlock/release.lua",
        ((" and (ARGV[4] == '0' or e[TOKEN] <= tonumber(ARGV[4]))", ""),),
        TROUBLE + "test_a_proposal_that_is_given_back_late_takes_no_later_grant_along",
    ),
    Mutant(
        "one overwritten key for all leases",
        "stores/redlock/node.lua",
        (("local state = redis.pcall('GET', key)", "local state = redis.call('GET', key)"),),
        TROUBLE + "test_a_key_that_was_overwritten_costs_no_other_lease_its_renewal",
    ),
    Mutant(
        "a node's clock that was set back is minded at every look anew",
        "stores/redlock/node.lua",
        (("if set_back and key then", "if false then"),),
        CLOCK + "test_6_a_redlock_whose_nodes_were_set_back_delays_by_a_ttl_at_most",
    ),
    Mutant(
        "a clock that was set back is not minded when somebody renews",
        "stores/redis/book.lua",
        (("if seen and now < seen then", "if false then"),),
        CLOCK + "test_6_a_clock_set_back_delays_by_a_ttl_at_most_also_beside_somebody_who_renews",
    ),
    Mutant(
        "a node that is getting a slot learns no scripts",
        "stores/redis/cluster.py",
        (("[*first, _ASKING, requests[index]]", "[_ASKING, requests[index]]"),),
        "tests/stores/redis/test_groups.py::test_a_held_lock_moves_to_a_node_that_does_not_know_the_scripts",
    ),
    Mutant(
        "an answer that was there before anybody looked is waited for",
        "stores/redis/connection.py",
        (
            (
                "if connection.next() is not False:",
                "if False:",
            ),
            (
                "                connection.step()\n        except",
                "                connection.step()\n                connection.next()\n        except",
            ),
        ),
        "tests/stores/redis/test_contract.py::test_a_server_that_answers_before_we_look_is_heard",
    ),
    Mutant(
        "a name is waited for as long as the resolver takes",
        "stores/redis/connection.py",
        (
            (
                "finish(look_up(address, ThreadBell(), boot_time() + deadline - _clock()))",
                "socket.getaddrinfo(*address, type=socket.SOCK_STREAM)",
            ),
        ),
        "tests/stores/redis/test_contract.py::test_a_name_that_no_resolver_answers_for_takes_no_longer_than_was_asked[threads]",
    ),
]


@pytest.mark.parametrize("mutant", [pytest.param(mutant, id=mutant.what) for mutant in MUTANTS])
def test_a_mistake_is_found(mutant: Mutant, source: Path) -> None:
    must_be_found(mutant, source)
