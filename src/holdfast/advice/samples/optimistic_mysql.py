import os
from urllib.parse import urlsplit

import pymysql

url = urlsplit(os.environ.get("MYSQL_URL", "mysql://root@localhost/shop"))
where = {"host": url.hostname, "port": url.port or 3306, "database": url.path.lstrip("/")}
db = pymysql.connect(user=url.username or "root", password=url.password or "", autocommit=True, **where)
cursor = db.cursor()
cursor.execute("CREATE TABLE IF NOT EXISTS account (id INTEGER PRIMARY KEY, balance INTEGER, version INTEGER)")
cursor.execute("INSERT IGNORE INTO account VALUES (42, 100, 0)")

UPDATE = "UPDATE account SET balance = %s, version = version + 1 WHERE id = 42 AND version = %s"


def withdraw(cents, attempts=10):
    """Written only if nobody wrote since it was read; else it is read and decided again."""
    for _ in range(attempts):
        cursor.execute("SELECT balance, version FROM account WHERE id = 42")
        balance, version = cursor.fetchone()
        if balance < cents:
            return False
        changed = cursor.execute(UPDATE, (balance - cents, version))
        if changed:
            return True
    raise RuntimeError("too many conflicts: this account is busy, let it have one writer")


assert withdraw(10)
db.close()
