import os

import psycopg

from holdfast.lockfree import optimistic

db = psycopg.connect(os.environ.get("POSTGRESQL_URL", "postgresql://localhost/shop"), autocommit=True)
db.execute("CREATE TABLE IF NOT EXISTS account (id INT PRIMARY KEY, balance INT, version INT NOT NULL)")
db.execute("INSERT INTO account VALUES (42, 100, 0) ON CONFLICT DO NOTHING")


def withdraw(cents):
    """Written only if nobody wrote since it was read; else read and decided again; `Conflict` in the end."""

    def decide(row):  # may be called several times: let it compute, and do nothing else
        if row["balance"] < cents:
            raise ValueError("not enough money")  # nothing is written
        return {"balance": row["balance"] - cents}

    return optimistic.update(db, "account", 42, decide)


assert withdraw(10)["balance"] <= 90
db.close()
