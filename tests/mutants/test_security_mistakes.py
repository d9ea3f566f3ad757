"""Each of these holes was once ours, or nearly: its test finds it again."""

from __future__ import annotations

from pathlib import Path

import pytest

from .spoiling import Mutant, must_be_found

SECRETS = "tests/security/test_secrets.py::"
URLS = SECRETS + "test_a_url_that_is_not_understood_shows_nothing_of_its_password"
ROGUE = "tests/security/test_rogue_redis.py::"
SIBLING = "::test_a_tenant_may_touch_nothing_of_a_sibling"
PRINTED = "tests/cli/test_migrate.py::test_the_documented_rights_are_those_that_are_printed"

MUTANTS = [
    Mutant("a ? in a password is not noticed", "secret.py", (('if "@" in query:', "if False:"),), URLS),
    Mutant("a host that is none is not noticed", "secret.py", (("if not all(_HOST", "if False and all(_HOST"),), URLS),
    Mutant(
        "frames that hold the URL in pieces",
        "connecting.py",
        (("raise error.with_traceback(None) from None", "raise"),),
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
        "an owner reaches a message as it is",
        "in_the_way.py",
        (("held by {printable(holding.owner)}", "held by {holding.owner}"),),
        SECRETS + "test_what_others_wrote_into_the_store_forges_no_line_of_a_message_or_a_log",
    ),
    Mutant(
        "what a server said reaches a log as it is",
        "events.py",
        (('printable(detail) if detail else ""', "detail"),),
        SECRETS + "test_what_a_server_said_forges_no_line_of_a_log",
    ),
    # ---- rogue servers
    Mutant(
        "a reply without a bound",
        "stores/redis/replies.py",
        (("if self._size > most:", "if False:"),),
        ROGUE + "test_a_reply_has_a_bound_and_the_next_one_has_it_anew",
    ),
    Mutant(
        "a list without a bound",
        "stores/redis/replies.py",
        (("if _LONG_LIST.search(self._tail + data):", "if False:"),),
        ROGUE + "test_a_long_list_is_seen_in_whatever_pieces_it_is_told",
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
]


@pytest.mark.parametrize("mutant", [pytest.param(mutant, id=mutant.what) for mutant in MUTANTS])
def test_a_mistake_is_found(mutant: Mutant, source: Path) -> None:
    must_be_found(mutant, source)
