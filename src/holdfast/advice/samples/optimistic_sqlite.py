import sqlite3

from holdfast.lockfree import optimistic

db = sqlite3.connect("shop.db", isolation_level=None)
db.execute("CREATE TABLE IF NOT EXISTS account (id INT PRIMARY KEY, balance INT, version INT NOT NULL)")
db.execute("INSERT INTO account VALUES (42, 100, 0) ON CONFLICT DO NOTHING")


# here: optimistic.py
db.close()
