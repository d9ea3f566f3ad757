import os
from urllib.parse import urlsplit

import pymysql

import holdfast
from holdfast import fenced

url = os.environ.get("MYSQL_URL", "mysql://root@localhost/shop")
parts = urlsplit(url)
where = {"host": parts.hostname, "port": parts.port or 3306, "database": parts.path.lstrip("/")}
db = pymysql.connect(user=parts.username or "root", password=parts.password or "", autocommit=True, **where)
cursor = db.cursor()
cursor.execute("CREATE TABLE IF NOT EXISTS stock (id INTEGER PRIMARY KEY, pieces INTEGER)")
cursor.execute("INSERT IGNORE INTO stock VALUES (42, 100)")
fenced.create_table(db)

locks = holdfast.connect(url)  # in the same database; any other store will do as well
with locks.lock("stock:42") as lease:
    with fenced.transaction(db, lease) as tx:  # StaleToken, if somebody else was given the lock meanwhile
        tx.cursor().execute("UPDATE stock SET pieces = pieces - 1 WHERE id = 42")
locks.close()
db.close()
