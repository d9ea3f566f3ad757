import os
from urllib.parse import urlsplit

import pymysql

import holdfast
from holdfast import fenced
from holdfast.lockfree import partition

url = os.environ.get("MYSQL_URL", "mysql://root@localhost/shop")
parts = urlsplit(url)
where = {"host": parts.hostname, "port": parts.port or 3306, "database": parts.path.lstrip("/")}
db = pymysql.connect(user=parts.username or "root", password=parts.password or "", autocommit=True, **where)
cursor = db.cursor()
cursor.execute("CREATE TABLE IF NOT EXISTS stock (id INTEGER PRIMARY KEY, pieces INTEGER)")
cursor.execute("INSERT IGNORE INTO stock VALUES (42, 100)")
fenced.create_table(db)

locks = holdfast.connect(url)  # in the same database; any other store will do as well
group = partition.Group(locks, "stock", partitions=16)
with group.join() as worker:  # start one in each process: each gets its share of the partitions
    worker.ready(timeout=30)
    with worker.working("stock:42") as lease:  # NotOwner, if the key is another worker's
        with fenced.transaction(db, lease) as tx:  # and what a former owner writes too late is refused
            tx.cursor().execute("UPDATE stock SET pieces = pieces - 1 WHERE id = 42")
locks.close()
db.close()
