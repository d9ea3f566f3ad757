import sqlite3

db = sqlite3.connect("shop.db", isolation_level=None)
db.execute("CREATE TABLE IF NOT EXISTS account (id INTEGER PRIMARY KEY, balance INTEGER, version INTEGER)")
db.execute("INSERT INTO account VALUES (42, 100, 0) ON CONFLICT DO NOTHING")

UPDATE = "UPDATE account SET balance = ?, version = version + 1 WHERE id = 42 AND version = ?"


def withdraw(cents, attempts=10):
    """Written only if nobody wrote since it was read; else it is read and decided again."""
    for _ in range(attempts):
        balance, version = db.execute("SELECT balance, version FROM account WHERE id = 42").fetchone()
        if balance < cents:
            return False
        changed = db.execute(UPDATE, (balance - cents, version)).rowcount
        if changed:
            return True
    raise RuntimeError("too many conflicts: this account is busy, let it have one writer")


assert withdraw(10)
db.close()
