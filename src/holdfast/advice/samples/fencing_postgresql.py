import os

import psycopg

import holdfast
from holdfast import fenced

url = os.environ.get("POSTGRESQL_URL", "postgresql://localhost/shop")
db = psycopg.connect(url, autocommit=True)
db.execute("CREATE TABLE IF NOT EXISTS stock (id INTEGER PRIMARY KEY, pieces INTEGER)")
db.execute("INSERT INTO stock VALUES (42, 100) ON CONFLICT DO NOTHING")
fenced.create_table(db)

locks = holdfast.connect(url)  # in the same database; any other store will do as well
with locks.lock("stock:42") as lease:
    with fenced.transaction(db, lease) as tx:  # StaleToken, if somebody else was given the lock meanwhile
        tx.execute("UPDATE stock SET pieces = pieces - 1 WHERE id = 42")
locks.close()
db.close()
