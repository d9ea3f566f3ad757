import os

import psycopg

import holdfast
from holdfast import fenced

db = psycopg.connect(os.environ.get("POSTGRESQL_URL", "postgresql://localhost/shop"), autocommit=True)
db.execute("CREATE TABLE IF NOT EXISTS stock (id INTEGER PRIMARY KEY, pieces INTEGER)")
db.execute("INSERT INTO stock VALUES (42, 100) ON CONFLICT DO NOTHING")
fenced.create_table(db)

locks = holdfast.connect()  # an SQLite file of this user; between machines: redis://…, etcd://…
with locks.lock("stock:42") as lease:
    with fenced.transaction(db, lease) as tx:  # StaleToken, if somebody else was given the lock meanwhile
        tx.execute("UPDATE stock SET pieces = pieces - 1 WHERE id = 42")
locks.close()
db.close()
