"""The tests can fail: each of these mistakes, made in a copy of the source, is found by the test that is meant to find it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..mutants.test_mistakes import Mutant, must_be_found, source

__all__ = ["source"]  # the fixture

OPTIMISTIC, IDEMPOTENCY = "lockfree/optimistic/", "lockfree/idempotency/"
SQL = "tests/lockfree/optimistic/test_sql.py::"
CELLS = "tests/lockfree/optimistic/test_cells.py::"
STORES = "tests/lockfree/idempotency/test_stores.py::"

MUTANTS = [
    Mutant(
        "a write that does not ask for the version",
        OPTIMISTIC + "statements.sql",
        (("{version} = :seen", "{version} >= :seen"),),
        SQL + "test_a_row_that_changed_between_read_and_write_is_read_again_and_nothing_is_lost[sqlite3]",
    ),
    Mutant(
        "one attempt too many",
        OPTIMISTIC + "retry.py",
        (
            (
                "for pause in range(retry.attempts - 1):\n        await",
                "for pause in range(retry.attempts):\n        await",
            ),
        ),
        "tests/lockfree/optimistic/test_retry.py::"
        "test_between_attempts_it_sleeps_with_full_jitter_and_never_after_the_last",
    ),
    Mutant(
        "a pause without jitter",
        OPTIMISTIC + "retry.py",
        (("driver.uniform(0.0, retry.ceiling(pause))", "retry.ceiling(pause)"),),
        "tests/lockfree/optimistic/test_retry.py::"
        "test_between_attempts_it_sleeps_with_full_jitter_and_never_after_the_last",
    ),
    Mutant(
        "several rows, and only the last is checked",
        OPTIMISTIC + "sql.py",
        (("if (await wire.run(statement)).rows == 0:", "if (await wire.run(statement)).rows == 0 and number == 0:"),),
        SQL + "test_several_rows_of_which_one_has_changed_are_not_written[psycopg]",
    ),
    Mutant(
        "MySQL's count of changed rows taken for that of matched ones",
        OPTIMISTIC + "sql.py",
        (("outcome.rows > 0 or outcome.last_id > 0", "outcome.rows > 0"),),
        SQL + "test_a_swap_that_finds_everything_as_it_should_be_has_held[pymysql]",
    ),
    Mutant(
        "Redis: versions that begin at 1 again",
        OPTIMISTIC + "write.lua",
        (("now[1] .. string.format('%06d', now[2])", "'1'"),),
        CELLS + "test_redis_a_key_made_anew_is_not_taken_for_the_old_one",
    ),
    Mutant(
        "Redis: a script that is sent twice conflicts with itself",
        OPTIMISTIC + "write.lua",
        (("'version_by') == ARGV[1]", "'version_by') == ''"),),
        CELLS + "test_redis_a_script_that_is_sent_twice_writes_once",
    ),
    Mutant(
        "a claim that takes what is taken",
        IDEMPOTENCY + "sqlite.sql",
        (("WHERE holdfast_idempotency.expires <= CAST(", "WHERE 0 <= CAST("),),
        STORES + "test_a_claim_that_comes_second_gets_nothing_even_if_it_did_not_look[sqlite3]",
    ),
    Mutant(
        "a late result that is accepted",
        IDEMPOTENCY + "sqlite.sql",
        (
            (
                "AS INTEGER) + :keep\nWHERE name = :name AND token = :token AND done = 0;",
                "AS INTEGER) + :keep\nWHERE name = :name AND :token > 0;",
            ),
        ),
        STORES + "test_a_dead_run_is_taken_over_after_its_ttl_and_its_late_result_is_refused[sqlite3]",
    ),
    Mutant(
        "a late failure that frees the successor's key",
        IDEMPOTENCY + "sqlite.sql",
        (
            (
                "DELETE FROM holdfast_idempotency WHERE name = :name AND token = :token AND done = 0;",
                "DELETE FROM holdfast_idempotency WHERE name = :name AND :token > 0;",
            ),
        ),
        STORES + "test_a_late_failure_does_not_free_the_key_of_the_successor[sqlite3]",
    ),
    Mutant(
        "Redis: a late result that is accepted",
        IDEMPOTENCY + "finish.lua",
        (
            ("if row[1] ~= ARGV[1] or row[2] ~= ARGV[2] then", "if not row[1] then"),
            ("if row[3] == '0' then", "if true then"),
        ),
        STORES + "test_a_dead_run_is_taken_over_after_its_ttl_and_its_late_result_is_refused[redis]",
    ),
    Mutant(
        "an effect outside of the transaction",
        IDEMPOTENCY + "core.py",
        (("                if self._atomic:\n                    await self._begin()\n", ""),),
        "tests/lockfree/idempotency/test_atomic.py::test_an_error_takes_the_effect_back[sqlite3]",
    ),
    Mutant(
        "work that is done again because its result could not be kept",
        IDEMPOTENCY + "core.py",
        (("            if self._atomic:  # nothing stands yet", "            if True:  # nothing stands yet"),),
        STORES + "test_a_result_that_cannot_be_kept_is_told_and_the_work_is_not_done_twice",
    ),
    Mutant(
        "a dead run finished with another payload",
        IDEMPOTENCY + "rule.py",
        (("if entry.payload != payload:", "if entry.payload != payload and not over:"),),
        "tests/lockfree/idempotency/test_surface.py::test_the_rule",
    ),
]


@pytest.mark.server
@pytest.mark.parametrize("mutant", [pytest.param(mutant, id=mutant.what) for mutant in MUTANTS])
def test_a_mistake_is_found(mutant: Mutant, source: Path) -> None:
    must_be_found(mutant, source)
