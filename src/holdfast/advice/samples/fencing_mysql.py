import os
from urllib.parse import urlsplit

import pymysql

import holdfast
from holdfast import fenced

# here: mysql_with_url_and_stock.py

locks = holdfast.connect(url)  # in the same database; any other store will do as well
with locks.lock("stock:42") as lease:
    with fenced.transaction(db, lease) as tx:  # StaleToken, if somebody else was given the lock meanwhile
        tx.cursor().execute("UPDATE stock SET pieces = pieces - 1 WHERE id = 42")
locks.close()
db.close()
