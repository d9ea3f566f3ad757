import os

import psycopg

from holdfast.lockfree import optimistic

db = psycopg.connect(os.environ.get("POSTGRESQL_URL", "postgresql://localhost/shop"), autocommit=True)
db.execute("CREATE TABLE IF NOT EXISTS account (id INT PRIMARY KEY, balance INT, version INT NOT NULL)")
db.execute("INSERT INTO account VALUES (42, 100, 0) ON CONFLICT DO NOTHING")


# here: optimistic.py
db.close()
