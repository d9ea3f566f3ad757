"""The lock and what it guards in one database: a holder that was overtaken changes nothing."""

from __future__ import annotations

import psycopg
import pytest

from holdfast import StaleToken, fenced
from holdfast.testing.servers.postgresql import PostgreSQL

from ..hands import Connect
from ..hops import check_the_way

pytestmark = pytest.mark.server


@pytest.mark.parametrize("mode", ["", "?mode=session"])
def test_a_stale_holder_changes_nothing_in_the_same_database(
    postgresql: PostgreSQL, connect: Connect, mode: str
) -> None:
    locks = connect(postgresql.url, mode)
    postgresql.query("DROP TABLE IF EXISTS balance; CREATE TABLE balance (amount int); INSERT INTO balance VALUES (0)")
    postgresql.query(fenced.schema("postgresql"))
    with psycopg.connect(postgresql.url) as storage:
        stale = locks.lock("balance").acquire()
        with fenced.transaction(storage, stale) as tx:
            tx.execute("UPDATE balance SET amount = amount + 1")
        assert locks.force_release("balance", token=stale.token)  # it is paused, say, and somebody breaks its lock
        with locks.lock("balance", timeout=10) as fresh, fenced.transaction(storage, fresh) as tx:
            tx.execute("UPDATE balance SET amount = amount + 10")
        with pytest.raises(StaleToken), fenced.transaction(storage, stale) as tx:
            tx.execute("UPDATE balance SET amount = 0")
    assert postgresql.query("SELECT amount FROM balance") == [("11",)]


def test_one_claim_takes_no_more_files_and_hops_than_the_page_says(postgresql: PostgreSQL) -> None:
    check_the_way("PostgreSQL", postgresql.url)
