import os
from urllib.parse import urlsplit

import pymysql

from holdfast.lockfree import optimistic

url = urlsplit(os.environ.get("MYSQL_URL", "mysql://root@localhost/shop"))
where = {"host": url.hostname, "port": url.port or 3306, "database": url.path.lstrip("/")}
db = pymysql.connect(user=url.username or "root", password=url.password or "", autocommit=True, **where)
cursor = db.cursor()
cursor.execute("CREATE TABLE IF NOT EXISTS account (id INT PRIMARY KEY, balance INT, version INT NOT NULL)")
cursor.execute("INSERT IGNORE INTO account VALUES (42, 100, 0)")


def withdraw(cents):
    """Written only if nobody wrote since it was read; else read and decided again; `Conflict` in the end."""

    def decide(row):  # may be called several times: let it compute, and do nothing else
        if row["balance"] < cents:
            raise ValueError("not enough money")  # nothing is written
        return {"balance": row["balance"] - cents}

    return optimistic.update(db, "account", 42, decide)


assert withdraw(10)["balance"] <= 90
db.close()
