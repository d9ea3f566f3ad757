import os
from urllib.parse import urlsplit

import pymysql

# here: mysql.py
cursor.execute(
    "CREATE TABLE IF NOT EXISTS event (stream VARCHAR(200), version BIGINT, cents INTEGER, PRIMARY KEY (stream, version))"
)


def withdraw(account, cents, attempts=10):
    """The unique version decides: of two who append at one, the other is told. (holdfast's journal is for other stores.)"""
    for _ in range(attempts):
        cursor.execute(
            "SELECT COALESCE(SUM(cents), 0), COALESCE(MAX(version), 0) FROM event WHERE stream = %s", (account,)
        )
        balance, version = cursor.fetchone()
        if balance < cents:
            return False
        try:
            cursor.execute("INSERT INTO event VALUES (%s, %s, %s)", (account, version + 1, -cents))
            return True
        except pymysql.IntegrityError:
            continue  # somebody was faster: read on, and decide again
    raise RuntimeError("too many conflicts: this account is busy, let it have one writer")


cursor.execute("INSERT INTO event SELECT 'account:42', 1, 100 WHERE NOT EXISTS (SELECT 1 FROM event)")
assert withdraw("account:42", 30)
db.close()
