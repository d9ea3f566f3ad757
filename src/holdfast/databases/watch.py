"""A commit inside of a guarded block does not go unnoticed: the savepoint that was set when the block began is gone.

What was done after such a commit was done without the mark's lock, so nothing that can still be undone is kept.
"""

from __future__ import annotations

from ..errors import Misuse
from .failures import code_of

NAME = "holdfast_fence"
SAVEPOINT = f"SAVEPOINT {NAME}"
RELEASE = f"RELEASE SAVEPOINT {NAME}"
BEGIN = "START TRANSACTION"  # where sql_mode is ORACLE, MariaDB takes BEGIN for half a block
# MariaDB takes several statements as one, which saves two round trips; and two more where autocommit is switched off meanwhile.
BEGIN_WATCHED_MARIADB = f"BEGIN NOT ATOMIC {BEGIN}; {SAVEPOINT}; END"
COMMIT_WATCHED_MARIADB = f"BEGIN NOT ATOMIC {RELEASE}; COMMIT; END"
SUSPEND_AND_BEGIN_MARIADB = f"BEGIN NOT ATOMIC SET autocommit = 0; {BEGIN}; {SAVEPOINT}; END"
COMMIT_AND_RESUME_MARIADB = f"BEGIN NOT ATOMIC {RELEASE}; COMMIT; SET autocommit = 1; END"

# PostgreSQL: there is no such savepoint, or no transaction at all; MySQL: it does not exist.
NO_TRANSACTION = "25P01"
_GONE = {"3B001", NO_TRANSACTION, 1305}


def ended_inside() -> Misuse:
    return Misuse(
        "the transaction was ended inside of the guarded block: by a commit or a rollback, by a statement that commits (on MySQL "
        "every CREATE, ALTER and DROP does), or by the server after an error. What was done after that was not fenced, and "
        "was rolled back where it could be. Let the block commit when it is left"
    )


def explain_end(error: BaseException) -> None:
    """Raise what helps, if the release failed because the savepoint is gone."""
    if code_of(error) in _GONE or "no such savepoint" in str(error):
        raise ended_inside() from error
