import os
from urllib.parse import urlsplit

import pymysql

import holdfast
from holdfast import fenced
from holdfast.lockfree import partition

# here: mysql_with_url_and_stock.py

locks = holdfast.connect(url)  # in the same database; any other store will do as well
group = partition.Group(locks, "stock", partitions=16)
with group.join() as worker:  # start one in each process: each gets its share of the partitions
    worker.ready(timeout=30)
    with worker.working("stock:42") as lease:  # NotOwner, if the key is another worker's
        with fenced.transaction(db, lease) as tx:  # and what a former owner writes too late is refused
            tx.cursor().execute("UPDATE stock SET pieces = pieces - 1 WHERE id = 42")
locks.close()
db.close()
