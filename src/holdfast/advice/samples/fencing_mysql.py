import os
from urllib.parse import urlsplit

import pymysql

import holdfast
from holdfast import fenced

url = urlsplit(os.environ.get("MYSQL_URL", "mysql://root@localhost/shop"))
where = {"host": url.hostname, "port": url.port or 3306, "database": url.path.lstrip("/")}
db = pymysql.connect(user=url.username or "root", password=url.password or "", autocommit=True, **where)
cursor = db.cursor()
cursor.execute("CREATE TABLE IF NOT EXISTS stock (id INTEGER PRIMARY KEY, pieces INTEGER)")
cursor.execute("INSERT IGNORE INTO stock VALUES (42, 100)")
fenced.create_table(db)

locks = holdfast.connect()  # an SQLite file of this user; between machines: redis://…, etcd://…
with locks.lock("stock:42") as lease:
    with fenced.transaction(db, lease) as tx:  # StaleToken, if somebody else was given the lock meanwhile
        tx.cursor().execute("UPDATE stock SET pieces = pieces - 1 WHERE id = 42")
locks.close()
db.close()
