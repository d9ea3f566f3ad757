"""Each of these holes was once ours, or nearly: its test finds it again."""

from __future__ import annotations

from pathlib import Path

import pytest

from .spoiling import Mutant, must_be_found

SECRETS = "tests/security/test_secrets.py::"
URLS = SECRETS + "test_a_url_that_is_not_understood_shows_nothing_of_its_password"
LOCAL = "tests/security/test_local_users.py::"
OF_OTHERS = "tests/fenced/test_files_of_others.py::"
PG = "tests/security/test_postgresql.py::"
ROWS = "tests/security/test_lying_rows.py::"
SERVERS = "tests/security/test_rogue_servers.py::test_whatever_answers_is_unavailable_soon_and_costs_little"
SIGNED = "tests/fenced/test_http_parts.py::test_a_signature_is_for_one_method_and_path"
ALSO = "tests/stores/also/test_urls.py::"
AFTER_LOGIN = "tests/security/test_after_login.py::test_whoever_lets_us_in_gets_nothing_more_and_costs_little"
ROGUE = "tests/security/test_rogue_redis.py::"
SIBLING = "::test_a_tenant_may_touch_nothing_of_a_sibling"
PRINTED = "tests/cli/test_migrate.py::test_the_documented_rights_are_those_that_are_printed"

MUTANTS = [
    Mutant(
        "a lease that a neighbour has spoilt is used for ever",
        "stores/etcd/store.py",
        (("if denied or not is_denied(error):", "if True:"),),
        "tests/security/test_least_privilege.py"
        "::test_a_neighbour_who_hangs_a_key_on_an_idle_lease_of_etcd_shuts_nobody_out",
    ),
    Mutant(
        "a client under Sentinels is one of localhost",
        "compat/redis_py.py",
        (('if hasattr(pool, "sentinel_manager") or (not', "if False and (not"),),
        "tests/compat/test_redis_py.py::test_a_client_under_sentinels_is_not_taken_for_one_of_localhost",
    ),
    Mutant(
        "a Redis that repeats our login is cited",
        "stores/redis/replies.py",
        (
            ("_REPEATED.split(str(reply), maxsplit=1)[0]", "str(reply)"),
            ("str(reply).replace(target.password.plain, HIDDEN)", "str(reply)"),
        ),
        SECRETS + "test_a_redis_that_repeats_our_login_is_not_cited",
    ),
    Mutant(
        "what cannot be read again is written",
        "lockfree/coding.py",
        (("if self._encode is to_json and is_too_deep(text):", "if False:"),),
        "tests/lockfree/test_coding.py::test_what_a_reader_elsewhere_might_not_manage_is_not_written",
    ),
    Mutant(
        "a number without end in headers is an error of Python's",
        "stores/etcd/headers.py",
        (("(HPACKError, ValueError)", "HPACKError"),),
        "tests/security/test_parsers.py::test_whatever_the_reader_of_headers_raises_is_the_end_of_the_connection",
    ),
    *(
        Mutant(
            f"PostgreSQL looks for {what} wherever it is told to",
            "stores/postgresql/statements.sql",
            ((right, wrong),),
            PG + "test_behind_a_pooler_too_nothing_is_named_that_others_may_have_made",
        )
        for what, right, wrong in (
            ("*", "OPERATOR(pg_catalog.*) 1000000.0)::bigint,\n", "* 1000000)::bigint,\n"),
            ("substr", "(pg_catalog.substr(", "(substr("),
            ("bytea", "''::pg_catalog.bytea", "''::bytea"),
        )
    ),
    Mutant(
        "TLS of Celery's broker is passed over",
        "contrib/celery/stores.py",
        (('if use_ssl and address.startswith("redis://"):', "if False:"),),
        "tests/contrib/test_tls_of_others.py::test_celerys_broker_is_asked_in_the_same_way",
    ),
    Mutant(
        "TLS without a file of its own is none",
        "contrib/addresses.py",
        (('return found or ({"tls": "yes"} if wanted else {})', "return found"),),
        "tests/contrib/test_tls_of_others.py::test_of_mysql_whatever_asks_for_tls_does",
    ),
    Mutant("a ? in a password is not noticed", "secret.py", (('if "@" in query:', "if False:"),), URLS),
    Mutant("a host that is none is not noticed", "secret.py", (("if not all(_HOST", "if False and all(_HOST"),), URLS),
    Mutant(
        "frames that hold the URL in pieces",
        "connecting.py",
        (("raise error.with_traceback(None) from None\n\n", "raise\n\n"),),
        URLS,
    ),
    Mutant(
        "libpq is cited",
        "stores/postgresql/url.py",
        (('it[0] if it[1] in options else "…"', "it[0]"),),
        URLS,
    ),
    Mutant(
        "a second @ is left to libpq",
        "stores/postgresql/url.py",
        (('if base.count("@") > 1:', "if False:"),),
        "tests/cli/test_passwords.py::test_fence_shows_nothing_of_the_password_of_its_database",
    ),
    Mutant(
        "a secret that shows itself",
        "secret.py",
        (("    def __format__(self, spec: str) -> str:\n        return HIDDEN\n", ""),),
        SECRETS + "test_a_secret_is_shown_as_stars_and_works_like_the_text_it_is",
    ),
    Mutant(
        "the secret of a secret is stars",
        "secret.py",
        (("super().__new__(cls, text[:])", "super().__new__(cls, text)"),),
        SECRETS + "test_a_secret_is_shown_as_stars_and_works_like_the_text_it_is",
    ),
    Mutant(
        "an owner reaches a message as it is",
        "in_the_way.py",
        (("held by {printable(holding.owner)}", "held by {holding.owner}"),),
        SECRETS + "test_who_is_in_the_way_is_told_on_one_line",
    ),
    Mutant(
        "what a server said reaches a log as it is",
        "events.py",
        (('printable(detail) if detail else ""', "detail"),),
        SECRETS + "test_what_a_server_said_forges_no_line_of_a_log",
    ),
    Mutant(
        "what a server said reaches an error as it is",
        "errors.py",
        (
            (
                "super().__init__(*(on_one_line(one) if isinstance(one, str) else one for one in args))",
                "super().__init__(*args)",
            ),
        ),
        SECRETS + "test_what_a_server_said_forges_no_line_of_an_error[consul-threads]",
    ),
    # ---- rogue servers
    Mutant(
        "a column is described by what is not there",
        "stores/mysql/connection_aio.py",
        (("    if at + _NUMBERS > len(data):\n", "    if False:\n"),),
        "tests/security/test_after_login.py::test_a_column_is_described_within_its_packet",
    ),
    Mutant(
        "a file of ours is wanted, and it is no fault of the server's",
        "stores/mysql/connection.py",
        (("OSError, ValueError, RuntimeError, *NONSENSE) as error:", "OSError, ValueError, *NONSENSE) as error:"),),
        AFTER_LOGIN + "[a file of ours is wanted-0-threads]",
    ),
    Mutant(
        "a server sends us to a socket of this machine",
        "stores/redis/replies.py",
        (("if not (_HOST.fullmatch(host) or (not host and otherwise)) or not 0 < number < 65536:", "if not host:"),),
        ROGUE + "test_nobody_is_sent_to_a_socket_of_this_machine",
    ),
    Mutant(
        "a reply without a bound",
        "stores/redis/bounds.py",
        (("if self._size > most:", "if False:"),),
        ROGUE + "test_a_reply_has_a_bound_and_the_next_one_has_it_anew",
    ),
    Mutant(
        "a list without a bound",
        "stores/redis/bounds.py",
        (("if self.listed * _LEAST > most:", "if False:"),),
        ROGUE + "test_a_long_list_is_seen_in_whatever_pieces_it_is_told",
    ),
    Mutant(
        "lists that are told in two pieces are not seen",
        "stores/redis/bounds.py",
        (("self._tail = seen[-3:]", 'self._tail = b""'),),
        ROGUE + "test_a_long_list_is_seen_in_whatever_pieces_it_is_told",
    ),
    Mutant(
        "only the longest of lists in lists is looked at",
        "stores/redis/bounds.py",
        (("self.listed += count", "self.listed = max(self.listed, count)"),),
        ROGUE + "test_lists_are_counted_once_each_in_whatever_pieces_they_are_told",
    ),
    Mutant(
        "a list behind a text that has no end",
        "stores/redis/bounds.py",
        (('if data[at : at + 2] != b"\\r\\n":', "if False:"),),
        ROGUE + "test_a_long_list_behind_a_text_that_does_not_end_is_seen",
    ),
    Mutant(
        "a list is one only at the beginning of a line",
        "stores/redis/bounds.py",
        (('rb"[*%~>|][0-9]{3}"', 'rb"(?:^|\\n)[*%~>|][0-9]{3}"'),),
        ROGUE + "test_a_long_list_behind_a_text_that_does_not_end_is_seen",
    ),
    Mutant(
        "a number of a list that was cut is an answer, in asyncio",
        "stores/redis/pipe.py",
        (("and waiting and self._bounds.between:", "and waiting and not reader.has_data():"),),
        ROGUE + "test_a_number_in_a_list_is_no_answer_however_the_list_is_cut_in_asyncio",
    ),
    Mutant(
        "a number of a list that was cut is an answer, in threads",
        "stores/redis/connection.py",
        (("and self._bounds.between and", "and not self._reader.has_data() and"),),
        ROGUE + "test_nor_in_threads",
    ),
    Mutant(
        "what the environment requires of a PostgreSQL is weakened",
        "stores/postgresql/url.py",
        ((' and not _default("require_auth"):', ":"),),
        "tests/security/test_postgresql.py::test_what_the_environment_requires_of_the_server_is_not_weakened",
    ),
    Mutant(
        "a history of somebody else's writes to the terminal as it likes",
        "cli/verify.py",
        (('f"{line(fault)} {count}"', 'f"{fault} {count}"'),),
        "tests/verify/test_parts.py::test_what_somebody_elses_history_says_is_shown_as_text",
    ),
    Mutant(
        "a ZooKeeper that greets a letter at a time is listened to for ever",
        "stores/zookeeper/wire.py",
        (("boot_time() + patience + max(patience, self._seconds / len(self.hosts))", "math.inf"),),
        "tests/security/test_rogue_zookeeper.py::test_who_greets_a_letter_at_a_time_does_not_keep_us_from_the_other_hosts",
    ),
    Mutant(
        "the holders of a lock are looked at again for each who waits",
        "cli/story.py",
        (("if other.name not in entered:", "if True:"),),
        "tests/cli/test_story.py::test_two_crowds_that_wait_for_each_other_are_told_of_in_a_moment",
    ),
    Mutant(
        "a password in clear text, if it is asked for",
        "stores/postgresql/url.py",
        (('usual["require_auth"] = "!password"', "pass"),),
        "tests/security/test_postgresql.py::test_a_password_goes_in_clear_text_only_if_the_url_allows_it",
    ),
    Mutant(
        "a superuser executes the functions of others",
        "stores/postgresql/greeting.py",
        (("        if owner:\n", "        if owner and not owner:\n"),),
        "tests/security/test_postgresql.py::test_a_superuser_does_not_execute_functions_that_others_own[lease]",
    ),
    Mutant(
        "a superuser who has taken on a role is no superuser",
        "stores/postgresql/question.sql",
        ((" session_user\n", " current_user\n"),),
        PG + "test_a_superuser_does_not_execute_functions_that_others_own[lease]",
    ),
    Mutant(
        "who may run programs on the server may execute the functions of others",
        "stores/postgresql/question.sql",
        (("ARRAY['pg_execute_server_program',", "ARRAY['pg_monitor',"),),
        PG + "test_a_superuser_does_not_execute_functions_that_others_own[lease]",
    ),
    Mutant(
        "the schema is made of whatever is found first",
        "stores/postgresql/greeting.py",
        (("SET LOCAL search_path = pg_catalog, pg_temp; {migration", "{migration"),),
        PG + "test_a_superuser_creates_the_schema_of_nothing_that_the_owner_of_the_database_made[lease]",
    ),
    Mutant(
        "the doctor calls whatever function is found first",
        "doctor/postgresql.py",
        (('                self.connection.execute("SET LOCAL search_path = pg_catalog, pg_temp")\n', ""),),
        PG + "test_the_doctor_calls_no_function_that_the_owner_of_the_database_put_before_those_of_the_server",
    ),
    # ---- rights that are more than it takes
    Mutant(
        "a tenant's keys are those of all whose prefix begins so",
        "stores/redis/replies.py",
        (('keys = f"~{target.prefix}:{{* &', 'keys = f"~{target.prefix}:* &'),),
        f"tests/conformance/test_redis.py{SIBLING}",
    ),
    Mutant(
        "whoever may load a script may flush them all",
        "stores/redis/replies.py",
        (
            (
                '"auth ping evalsha script|load get set setrange del exists pexpire pttl hget hset hdel hgetall zadd',
                '"auth ping evalsha script get set setrange del exists pexpire pttl hget hset hdel hgetall zadd',
            ),
        ),
        f"tests/conformance/test_redis.py{SIBLING}",
    ),
    Mutant(
        "a node of Consul, and all whose name begins so",
        "cli/grants.py",
        (('session "{node}"', 'session_prefix "{node}"'),),
        PRINTED,
    ),
    Mutant(
        "what only procedures call may be called by everybody",
        "cli/grants.py",
        ((" if name not in _CALLED_BY_OTHERS", ""),),
        PRINTED,
    ),
    # ---- another user of this machine
    Mutant(
        "a link in place of the folder of bells is followed",
        "drivers/doorbell.py",
        ((' | getattr(os, "O_NOFOLLOW", 0)', ""),),
        LOCAL + "test_a_ring_removes_no_file_that_a_link_in_place_of_the_folder_leads_to",
    ),
    Mutant(
        "whatever does not answer a ring is removed",
        "drivers/doorbell.py",
        (
            (
                "        if stat.S_ISSOCK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):\n",
                "        if True:\n",
            ),
        ),
        LOCAL + "test_a_ring_removes_nothing_but_sockets",
    ),
    Mutant(
        "the folder of bells is given away by its path",
        "drivers/doorbell.py",
        (
            (
                "                _share_folder(folder, rights)\n",
                '                _share_folder(f"{beside}-bells", rights)\n',
            ),
            ("    found = os.fstat(folder)\n", "    found = os.stat(folder)\n"),
        ),
        LOCAL + "test_the_rights_of_no_other_folder_are_changed_by_a_link_that_comes_in_time",
    ),
    Mutant(
        "a folder that is full of other things is given away",
        "drivers/doorbell.py",
        ((" and not os.listdir(folder)", ""),),
        LOCAL + "test_a_folder_with_something_in_it_is_not_given_away",
    ),
    Mutant(
        "a bell is given away by its path",
        "drivers/doorbell.py",
        (
            (
                "    if not _held_by_number():\n        _share(path, rights, mode, follow_symlinks=False)\n",
                "    if True:\n        _share(path, rights, mode)\n",
            ),
        ),
        LOCAL + "test_the_rights_of_no_other_file_are_changed_by_what_is_put_in_place_of_a_bell[a link]",
    ),
    Mutant(
        "a socket is taken for the one that was bound",
        "drivers/doorbell.py",
        (
            ("        _send(word, held)\n", ""),
            ("        while bound.recv(len(word)) != word:\n            pass  # somebody rings already\n", ""),
        ),
        LOCAL
        + "test_the_rights_of_no_other_file_are_changed_by_what_is_put_in_place_of_a_bell[another socket of ours]",
    ),
    Mutant(
        "a link of another user in a folder open to all is followed",
        "drivers/paths.py",
        (("        if is_planted(here):\n", "        if False:\n"),),
        OF_OTHERS + "test_a_link_that_another_user_has_put_in_place_of_the_file_is_not_followed",
    ),
    Mutant(
        "SQLite finds out where a link leads",
        "stores/sqlite/database.py",
        (("            real = resolved(self.path)\n", "            real = os.path.realpath(self.path)\n"),),
        LOCAL + "test_no_link_that_another_user_has_put_in_place_of_a_file_of_the_store_is_followed[locks.db]",
    ),
    Mutant(
        "what lies beside the file is not looked at",
        "stores/sqlite/database.py",
        (('(real, f"{real}-wal", f"{real}-shm", f"{real}-journal")', "(real,)"),),
        LOCAL + "test_no_link_that_another_user_has_put_in_place_of_a_file_of_the_store_is_followed[locks.db-wal]",
    ),
    Mutant(
        "a file that can be guessed is anybody's",
        "drivers/paths.py",
        (("    return owner not in (os.geteuid(), folder.st_uid, 0)\n", "    return False\n"),),
        LOCAL + "test_a_file_that_another_user_has_put_into_a_folder_open_to_all_is_no_store",
    ),
    Mutant(
        "a pipe in place of the content is waited for",
        "fenced/files.py",
        (("    if not stat.S_ISREG(os.fstat(opened).st_mode):\n", "    if False:\n"),),
        OF_OTHERS + "test_a_pipe_or_a_late_link_in_place_of_the_content_neither_hangs_nor_leads_away",
    ),
    Mutant(
        "a second name of another file is taken for the lock of a guard",
        "fenced/files.py",
        (("    if linked or about", "    if about"),),
        OF_OTHERS + "test_a_second_name_of_another_file_is_not_taken_for_ours",
    ),
    Mutant(
        "a page that is made of what a file says",
        "verify/report.py",
        (("{escape(str(about['workers']))} workers", "{about['workers']} workers"),),
        "tests/verify/test_parts.py::test_a_history_of_somebody_elses_puts_nothing_into_the_page_but_text",
    ),
    Mutant(
        "a history of anything",
        "verify/record.py",
        (('            raise TypeError(f"{field} is no {kind}")\n', "            pass\n"),),
        "tests/verify/test_parts.py::test_a_step_of_another_kind_is_no_history",
    ),
    Mutant(
        "notes of a history are not looked at",
        "verify/record.py",
        (("    _check(note, _NOTE)\n", ""),),
        "tests/verify/test_parts.py::test_a_note_of_another_kind_is_no_history",
    ),
    Mutant(
        "a note says for how long, or nothing is drawn",
        "verify/nemesis.py",
        (
            (
                "    except (IndexError, ValueError):\n        return 0.0\n",
                "    except ZeroDivisionError:\n        return 0.0\n",
            ),
        ),
        "tests/verify/test_parts.py::test_whatever_a_note_or_a_step_says_is_drawn_as_text",
    ),
    Mutant(
        "a link in place of the dashboard's history is followed",
        "dashboard/history.py",
        (("        if planted := next(", "        if planted := False and next("),),
        LOCAL + "test_a_history_that_another_user_has_put_in_place_is_not_used",
    ),
    Mutant(
        "the dashboard's token goes wherever it is sent",
        "observe/dashboard.py",
        (("build_opener(_Nowhere, *direct)", "build_opener(*direct)"),),
        "tests/dashboard/test_told.py::test_the_token_goes_to_the_dashboard_and_to_nobody_it_would_send_us_to",
    ),
    Mutant(
        "the token of a dashboard on this machine goes to a proxy",
        "observe/dashboard.py",
        (("[ProxyHandler({})] if is_local", "[] if is_local"),),
        "tests/dashboard/test_told.py::test_what_is_for_this_machine_goes_through_no_proxy",
    ),
    Mutant(
        "a session that nobody has signed opens the dashboard",
        "dashboard/access.py",
        (
            (
                'if not hmac.compare_digest(signature.encode(), self._signed(f"session {said}").encode()):',
                "if not signature:",
            ),
        ),
        "tests/dashboard/test_http.py::test_a_session_that_we_did_not_give_or_that_is_over_is_none",
    ),
    Mutant(
        "a session has no end",
        "dashboard/access.py",
        (("len(ends) < 15 and int(ends) > time.time()", "len(ends) < 15"),),
        "tests/dashboard/test_http.py::test_a_session_that_we_did_not_give_or_that_is_over_is_none",
    ),
    Mutant(
        "a session of another token is as good",
        "dashboard/access.py",
        (("token.plain.encode(), b", "b'', b"),),
        "tests/dashboard/test_http.py::test_every_worker_knows_a_session_and_so_does_the_server_after_a_restart",
    ),
    Mutant(
        "what is left is counted down, though nobody has looked",
        "dashboard/page/pieces.js",
        (("rest > 0 ? unseen(store) :", "rest > 0 ? false :"),),
        "tests/dashboard/test_browser_live.py::test_a_ttl_is_run_out_only_if_somebody_has_looked_since",
    ),
    Mutant(
        "an eviction that somebody in between did not answer is told as one that was not done",
        "dashboard/page/state.js",
        (("catch { throw new TypeError(", "catch { throw new Error("),),
        "tests/dashboard/test_browser_live.py::test_who_puts_out_and_is_not_answered_is_told_that_it_may_have_happened",
    ),
    Mutant(
        "every user of the machine puts holders out, by an application of one's own",
        "dashboard/__init__.py",
        (("if allow_evict and token is None and not mounted:", "if False:"),),
        "tests/dashboard/test_http.py::test_putting_holders_out_wants_a_token_even_on_this_machine",
    ),
    Mutant(
        "another site makes the laboratory work",
        "lab/app.py",
        (('(foreign and request.url.path != "/")', "False"),),
        "tests/lab/test_stage.py::test_another_sites_page_may_lead_here_and_no_more",
    ),
    Mutant(
        "every user of the machine puts holders out",
        "cli/dashboard.py",
        (('    if options.flag("allow_evict") and not token:\n', "    if False:\n"),),
        "tests/dashboard/test_http.py::test_putting_holders_out_wants_a_token_even_on_this_machine",
    ),
    Mutant(
        "a question without a bottom",
        "dashboard/app.py",
        (("except (ValueError, RecursionError):", "except ValueError:"),),
        "tests/dashboard/test_http.py::test_hostile_questions_are_refused_and_no_fault_of_ours",
    ),
    Mutant(
        "a client names the lock by what the endpoint does not get",
        "contrib/fastapi.py",
        (("if parameter is None or where is None:", 'where = where or "query"\n    if parameter is None:'),),
        "tests/contrib/test_fastapi.py::test_what_else_a_client_sends_does_not_name_the_lock",
    ),
    # ---- rows that lie
    Mutant(
        "rows are taken for what was asked for",
        "stores/kit/wary.py",
        (("            except NONSENSE as error:", "            except ZeroDivisionError as error:"),),
        ROWS + "test_rows_of_another_shape_are_unavailable[postgresql-threads-lease]",
    ),
    Mutant(
        "a conversation with MySQL that does not end well",
        "stores/mysql/conversation.py",
        (
            ("            except NONSENSE as error:\n", "            except ZeroDivisionError as error:\n"),
            ('    @understood("MySQL", lambda conversation: conversation.target.shown())\n', ""),
        ),
        ROWS + "test_rows_of_another_shape_are_unavailable[mariadb-threads-lease]",
    ),
    Mutant(
        "any number is a token",
        "stores/kit/wary.py",
        (("and not 0 < found <= MAX_TOKEN:", "and False:"),),
        ROWS + "test_a_token_that_no_store_gives_is_refused",
    ),
    Mutant(
        "a ring that is no text",
        "stores/postgresql/connection.py",
        (('message.extra.decode("utf-8", "replace")', "message.extra.decode()"),),
        ROWS + "test_a_ring_that_is_no_text_disturbs_nobody",
    ),
    Mutant(
        "a ring that is no UTF-8 ends the ear of a database without an encoding",
        "stores/postgresql/ear.py",
        (("\"SET client_encoding = 'SQL_ASCII'; \"", '""'),),
        PG + "test_a_ring_that_is_no_text_ends_nobodys_ear",
    ),
    # ---- also=: another library's lock
    Mutant(
        "a password is sent to whoever asks for it, for the old lock",
        "stores/also/sql.py",
        (
            (
                "                self._target,\n",
                "                self._target._replace(conninfo=type(self._target.conninfo)("
                'self._target.conninfo.plain.replace("require_auth", "application_name"))),\n',
            ),
        ),
        ALSO + "test_a_password_is_not_sent_in_clear_text_to_whoever_asks_for_it",
    ),
    Mutant(
        "frames of a login with the password of the old lock",
        "stores/postgresql/opening.py",
        (
            ("    pgconn = pq.PGconn.connect_start(make", "    plain = make"),
            ("**settings).encode())\n", "**settings).encode()\n    pgconn = pq.PGconn.connect_start(plain)\n"),
            ("            continue\n", "            raise\n"),
        ),
        ALSO + "test_no_password_is_shown_whatever_is_wrong_with_the_url",
    ),
    Mutant(
        "a / in a password of PostgreSQL is left to libpq",
        "stores/postgresql/url.py",
        (('if at and "/" in login:', "if False:"),),
        URLS,
    ),
    Mutant(
        "a node stands in the line of another lock",
        "stores/also/nodes.py",
        (("if any(_NUMBER.search(part) for", "if False and any(_NUMBER.search(part) for"),),
        ALSO + "test_a_name_makes_no_node_in_the_place_of_another",
    ),
    Mutant(
        "nodes of somebody who logged in are open",
        "stores/also/nodes.py",
        (('CREATOR_ALL_ACL if self._target.acl == "creator" else None', "None"),),
        ALSO + "test_a_login_to_zookeeper_has_nodes_of_its_own",
    ),
    # ---- strangers who ask over HTTP, and what a command is given
    Mutant(
        "what makes no name is a fault of ours",
        "contrib/http.py",
        (
            (
                "ANSWERED = (NotAcquired, Unavailable, LeaseLost, Unnameable)",
                "ANSWERED = (NotAcquired, Unavailable, LeaseLost)",
            ),
        ),
        "tests/contrib/test_flask.py::test_what_makes_no_name_is_the_fault_of_who_sent_it",
    ),
    Mutant(
        "a name as wide as a stranger says",
        "decorating.py",
        (("fill = _bounded(template)", "pass"),),
        "tests/test_decorating.py::test_what_makes_no_name_is_refused_as_that_and_makes_no_long_text[wide]",
    ),
    Mutant(
        "a command is given the token of the dashboard",
        "cli/run.py",
        ((', "HOLDFAST_DASHBOARD_TOKEN": None}', "}"),),
        "tests/cli/test_passwords.py::test_the_command_is_not_given_the_token_of_the_dashboard_unless_that_is_said",
    ),
    # ---- whoever answers in the place of a server
    *(
        Mutant(
            f"etcd listens for as long as something is said, in {world}",
            "stores/etcd/wire.py",
            (("                if heard >= deadline:", "                if False:"),),
            f"tests/stores/etcd/test_pings.py::test_pings_without_an_end_end_with_the_deadline[{world}]",
        )
        for world in ("threads", "asyncio")
    ),
    Mutant(
        "ZooKeeper's reply is as long as it says",
        "stores/zookeeper/wire.py",
        (("        if not 0 <= length <= MOST:\n", "        if False:\n"),),
        "tests/security/test_rogue_servers.py::test_a_reply_of_zookeeper_that_no_lock_has_is_not_even_read",
    ),
    Mutant(
        "half a greeting of MySQL is a mistake of the user's",
        "stores/mysql/connections.py",
        (
            (
                'raise Unavailable(f"what answers at {target.shown()} does',
                'raise Misuse(f"what answers at {target.shown()} does',
            ),
        ),
        SERVERS + "[mysql-half a greeting-threads]",
    ),
    Mutant(
        "half a greeting of MySQL is a mistake of the user's, in asyncio",
        "stores/mysql/connections.py",
        (
            (
                'raise Unavailable(f"what answers at {target.shown()} does',
                'raise Misuse(f"what answers at {target.shown()} does',
            ),
        ),
        SERVERS + "[mysql-half a greeting-asyncio]",
    ),
    Mutant(
        "a port of any length",
        "stores/kit/url.py",
        (("(?::([0-9]{1,5}))?", "(?::([0-9]+))?"),),
        "tests/security/test_urls.py::test_a_url_is_understood_or_refused_and_shows_no_password",
    ),
    Mutant(
        "a path that is decoded twice leads out of what was signed",
        "fenced/http/signature.py",
        (("_WAY_OUT.search(asked) is None", "'/..' not in asked"),),
        SIGNED,
    ),
    Mutant(
        "a slash that is decoded twice leads out of what was signed",
        "fenced/http/signature.py",
        (('r"(/|%252f|%(25)?5c)(', 'r"(/|%5c)('),),
        SIGNED,
    ),
    Mutant(
        "a method in small letters needs no key",
        "lockfree/idempotency/wsgi.py",
        (('environ["REQUEST_METHOD"].upper() not in', 'environ["REQUEST_METHOD"] not in'),),
        "tests/lockfree/idempotency/test_bodies.py::test_a_method_in_small_letters_goes_by_no_side_door",
    ),
    Mutant(
        "a length of 5,000 digits",
        "lockfree/idempotency/wsgi.py",
        ((" if len(length) < 19 else sys.maxsize", ""),),
        "tests/lockfree/idempotency/test_bodies.py::test_a_length_beyond_all_numbers_is_too_much",
    ),
    Mutant(
        "an empty token leaves the dashboard open",
        "dashboard/__init__.py",
        (("token is not None and len(token)", "token and len(token)"),),
        "tests/dashboard/test_http.py::test_a_token_that_is_none_or_soon_guessed_opens_nothing",
    ),
    Mutant(
        "pages without number",
        "dashboard/app.py",
        (("if self._streams >= _MOST_STREAMS:", "if False:"),),
        "tests/dashboard/test_http.py::test_only_so_many_pages_are_told_at_once",
    ),
    Mutant(
        "what urllib takes for a port is cited",
        "advice/observed.py",
        (
            ("            if isinstance(error, HTTPException)\n", "            if False\n"),
            ("else redacted(str(error))", "else str(error)"),
        ),
        "tests/cli/test_advise_ttl.py::test_a_password_in_the_address_of_an_exporter_is_not_shown",
    ),
    Mutant(
        "seconds of a history that are none",
        "advice/observed.py",
        (("        if not _is_amount(seconds):\n", "        if False:\n"),),
        "tests/cli/test_advise_ttl.py::test_metrics_and_histories_of_others_end_and_are_looked_at_value_by_value",
    ),
    Mutant(
        "the old lock listens to MySQL for ever",
        "stores/also/sql.py",
        (("return Asking(\n                _SECONDS,\n", "return pymysql.connect(\n"),),
        ALSO + "test_an_answer_of_a_rogue_mysql_has_a_bound",
    ),
    Mutant(
        "frames of PyMySQL with the password of the old lock",
        "stores/also/sql.py",
        (('            problem: Exception = Misuse(f"cannot connect to {self.where}: {error}")', "            raise"),),
        ALSO + "test_a_rogue_mysql_is_given_no_password_and_no_frame_holds_it",
    ),
    Mutant(
        "frames of PyMySQL with the password, if what answers is no MySQL",
        "stores/also/sql.py",
        (
            (
                "        except Exception as error:  # also what",
                "        except pymysql.err.Error as error:  # not what",
            ),
        ),
        ALSO + "test_whatever_answers_the_old_lock_as_mysql_no_frame_holds_the_password",
    ),
    Mutant(
        "a path that is no text",
        "fenced/http/signature.py",
        ((' or any("\\ud800" <= letter <= "\\udfff" for letter in path)', ""),),
        SIGNED,
    ),
]


@pytest.mark.parametrize("mutant", [pytest.param(mutant, id=mutant.what) for mutant in MUTANTS])
def test_a_mistake_is_found(mutant: Mutant, source: Path) -> None:
    must_be_found(mutant, source)
