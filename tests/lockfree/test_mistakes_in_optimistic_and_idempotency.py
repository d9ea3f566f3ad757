"""The tests can fail: each of these mistakes, made in a copy of the source, is found by the test that is meant to find it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..mutants.spoiling import Mutant, must_be_found

OPTIMISTIC, IDEMPOTENCY = "lockfree/optimistic/", "lockfree/idempotency/"
SQL = "tests/lockfree/optimistic/test_sql.py::"
CELLS = "tests/lockfree/optimistic/test_cells.py::"
STORES = "tests/lockfree/idempotency/test_stores.py::"
WHOSE = "tests/lockfree/idempotency/test_whose_answer.py::"
HANG_UP = "tests/lockfree/idempotency/test_hang_up.py::"
POOLS = "tests/lockfree/idempotency/test_pools.py::"
ANEW = "tests/lockfree/idempotency/test_kept_anew.py::"

MUTANTS = [
    Mutant(
        "work is done again, since the connection broke on which its result was to be kept",
        IDEMPOTENCY + "core.py",
        (("if self._atomic or not anew or self._driver", "if True or self._driver"),),
        ANEW + "test_a_result_whose_keeping_was_not_answered_is_kept_on_another_connection[sqlite3-lost]",
    ),
    Mutant(
        "whose result was kept, and who was not answered, is told that he was taken over",
        IDEMPOTENCY + "sqlite.sql",
        (("WHERE name = :name AND token = :token;", "WHERE name = :name AND token = :token AND done = 0;"),),
        ANEW + "test_a_result_whose_keeping_was_not_answered_is_kept_on_another_connection[sqlite3-not answered]",
    ),
    Mutant(
        "a result is to be kept when its run counts as dead",
        IDEMPOTENCY + "core.py",
        (("give_up = min(self._until,", "give_up = max(self._until,"),),
        ANEW + "test_nobody_goes_on_when_the_run_counts_as_dead[sqlite3]",
    ),
    Mutant(
        "a result is kept of work that was rolled back",
        IDEMPOTENCY + "core.py",
        (("if self._atomic or not anew or self._driver", "if not anew or self._driver"),),
        ANEW + "test_what_was_rolled_back_is_not_kept_later[sqlite3]",
    ),
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
                "AS INTEGER) + :keep\nWHERE name = :name AND token = :token;",
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
                "DELETE FROM holdfast_idempotency WHERE name = :name AND runner = :runner AND done = 0;",
                "DELETE FROM holdfast_idempotency WHERE name = :name AND :runner <> '';",
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
        (("                if self._atomic:\n                    await self._ledger.begin()\n", ""),),
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
    Mutant(
        "keys of callers and of nobody in one space",
        IDEMPOTENCY + "request.py",
        (
            ('f"http:caller:{sha256(', 'f"http:{sha256('),
            ('f"http:anybody:{key}"', 'f"http:{key}"'),
        ),
        WHOSE + "test_nobody_reaches_a_callers_answer_by_a_key_that_looks_like_it",
    ),
    Mutant(
        "another's cookie in the answer",
        IDEMPOTENCY + "request.py",
        (('        "set-cookie",\n', ""),),
        WHOSE + "test_cookies_and_what_is_for_one_connection_do_not_come_again",
    ),
    Mutant(
        "a moment's answer that is kept",
        IDEMPOTENCY + "request.py",
        (("code not in PASSING", "code not in ()"),),
        WHOSE + "test_what_is_true_for_a_moment_is_not_kept",
    ),
    Mutant(
        "an application that is told at once that its client has left",
        IDEMPOTENCY + "asgi.py",
        (
            (
                "            await asyncio.sleep(max(0.0, self._until",
                "            await asyncio.sleep(min(0.0, self._until",
            ),
        ),
        HANG_UP + "test_however_a_client_leaves_the_work_is_done_once[it is heard-2.0]",
    ),
    Mutant(
        "an application that hears of its client's broken socket",
        IDEMPOTENCY + "asgi.py",
        (("            except OSError:", "            except ZeroDivisionError:"),),
        HANG_UP + "test_however_a_client_leaves_the_work_is_done_once[the socket breaks-2.4]",
    ),
    Mutant(
        "work that is cancelled with its request",
        IDEMPOTENCY + "asgi.py",
        (("await asyncio.shield(work)", "await work"),),
        HANG_UP + "test_however_a_client_leaves_the_work_is_done_once[the request is cancelled-2.0]",
    ),
    Mutant(
        "WSGI: an answer that nobody reads and that never ends",
        IDEMPOTENCY + "wsgi.py",
        (("boot_time() >= self._until and not self._left", "False"),),
        HANG_UP + "test_an_answer_without_end_ends_with_its_ttl_and_the_work_is_not_done_again[wsgi]",
    ),
    Mutant(
        "a connection of the pool held while the body works",
        IDEMPOTENCY + "core.py",
        (("if self._lent and not self._atomic:", "if not self:"),),
        POOLS + "test_work_without_a_transaction_holds_no_connection[sqlite3]",
    ),
    Mutant(
        "a connection of the pool held while others work",
        IDEMPOTENCY + "core.py",
        (("if self._lent and self._ledger.transactional:", "if not self:"),),
        POOLS + "test_whoever_waits_for_another_holds_no_connection[sqlite3]",
    ),
    Mutant(
        "a sweep whose failure is told as the work's",
        IDEMPOTENCY + "core.py",
        (
            (
                "        except Exception as error:\n            report(",
                "        except ZeroDivisionError as error:\n            report(",
            ),
        ),
        "tests/lockfree/idempotency/test_atomic.py::test_a_sweep_that_fails_is_no_failure_of_the_work[sqlite3-True]",
    ),
    Mutant(
        "a creation that overwrites",
        OPTIMISTIC + "asgi.py",
        (("    if creates:\n        return ABSENT\n", ""),),
        "tests/lockfree/optimistic/test_http.py::test_what_is_to_be_created_does_not_overwrite_what_is_there",
    ),
    Mutant(
        "a row count that a pipeline does not know yet",
        "databases/postgresql.py",
        (("        if self._connection.pgconn.pipeline_status:\n            #", "        if False:\n            #"),),
        "tests/lockfree/test_journal.py::test_in_a_pipeline_of_psycopg_a_lost_event_is_told[psycopg]",
    ),
]

LOST = "tests/lockfree/test_lost_answers.py::"
POST = "tests/lockfree/test_post.py::"
QUEUE = "tests/lockfree/test_queue.py::"
MUTANTS += [
    Mutant(
        "an event that is sent again is appended again",
        "lockfree/journal/append.lua",
        (("there[2][6] == ARGV[3]", "false"),),
        LOST + "test_an_event_is_appended_once[1-None-redis]",
    ),
    Mutant(
        "a message that is sent again is put again",
        "lockfree/partition/put.lua",
        (("if not redis.call('SET', KEYS[5], 1, 'NX', 'PX', ARGV[5]) then", "if false then"),),
        LOST + "test_a_message_is_put_once_even_if_it_is_done_and_gone_before_it_is_sent_again[redis]",
    ),
    Mutant(
        "an acknowledgement of what nobody handled",
        "lockfree/mailbox/letters.py",
        (("if not begun and not letter.reply_to:", "if not letter:"),),
        POST + "test_messages_of_a_key_that_was_given_up_stay_in_the_queue[redis]",
    ),
    Mutant(
        "a letter of nobody's ends the serving of all",
        "lockfree/mailbox/remote.py",
        (("    except Misuse as error:  # nobody's", "    except ZeroDivisionError as error:  # nobody's"),),
        POST + "test_a_letter_of_nobodys_does_not_end_the_serving_of_all[redis]",
    ),
    Mutant(
        "an answer goes wherever a letter says",
        "lockfree/mailbox/letters.py",
        (('if to != "" and not (', "if False and not ("),),
        POST + "test_a_letter_of_nobodys_does_not_end_the_serving_of_all[redis]",
    ),
    Mutant(
        "an answer that cannot be written down ends the serving of all",
        "lockfree/mailbox/remote.py",
        (
            (
                "        except Misuse as error:  # what cannot",
                "        except ZeroDivisionError as error:  # what cannot",
            ),
        ),
        POST + "test_nor_does_an_answer_that_cannot_be_written_down[redis]",
    ),
    Mutant(
        "an actor's failure that is taken for a refusal",
        "lockfree/mailbox/aio.py",
        (("                    reply.begun = True\n", ""),),
        POST + "test_in_asyncio_nothing_that_nobody_handled_is_acknowledged_either[redis]",
    ),
    Mutant(
        "Redis: two counts of partitions",
        "lockfree/partition/put.lua",
        (("count ~= ARGV[4]", "count == ''"),),
        QUEUE + "test_whoever_counts_partitions_otherwise_is_refused_so_that_no_key_is_in_two_hands[put-redis]",
    ),
    Mutant(
        "PostgreSQL: two counts of partitions",
        "lockfree/partition/postgresql.py",
        (("        self._agreed = private", "        self._agreed = True"),),
        QUEUE + "test_whoever_counts_partitions_otherwise_is_refused_so_that_no_key_is_in_two_hands[take-psycopg]",
    ),
    Mutant(
        "PostgreSQL: a count of partitions that is believed although it was rolled back",
        "lockfree/partition/postgresql.py",
        (("self._agreed = not self._wire.busy()", "self._agreed = True"),),
        QUEUE + "test_a_count_that_was_rolled_back_binds_nobody[psycopg]",
    ),
    Mutant(
        "the adviser's sample on another store than it was asked for",
        "advice/tree.py",
        (("    if store not in _URLS or ", "    if store or "),),
        "tests/cli/test_advise.py::test_every_sample_runs_and_runs_again[simple-lock-postgresql]",
    ),
    Mutant(
        "the adviser's fenced sample with its lock in a file of SQLite",
        "advice/samples/fencing_postgresql.py",
        (("holdfast.connect(url)", "holdfast.connect()"),),
        "tests/cli/test_advise.py::test_every_sample_runs_and_runs_again[fencing-postgresql]",
    ),
]


@pytest.mark.server
@pytest.mark.parametrize("mutant", [pytest.param(mutant, id=mutant.what) for mutant in MUTANTS])
def test_a_mistake_is_found(mutant: Mutant, source: Path) -> None:
    must_be_found(mutant, source)
