import sqlite3

import holdfast
from holdfast import fenced
from holdfast.lockfree import partition

db = sqlite3.connect("shop.db", isolation_level=None)
db.execute("CREATE TABLE IF NOT EXISTS stock (id INTEGER PRIMARY KEY, pieces INTEGER)")
db.execute("INSERT INTO stock VALUES (42, 100) ON CONFLICT DO NOTHING")
fenced.create_table(db)

locks = holdfast.connect()  # an SQLite file of this user; between machines: redis://…, etcd://…
group = partition.Group(locks, "stock", partitions=16)
with group.join() as worker:  # start one in each process: each gets its share of the partitions
    worker.ready(timeout=30)
    with worker.working("stock:42") as lease:  # NotOwner, if the key is another worker's
        with fenced.transaction(db, lease) as tx:  # and what a former owner writes too late is refused
            tx.execute("UPDATE stock SET pieces = pieces - 1 WHERE id = 42")
locks.close()
db.close()
