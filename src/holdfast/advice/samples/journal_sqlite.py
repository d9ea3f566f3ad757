import sqlite3

from holdfast.lockfree import journal

db = sqlite3.connect("shop.db", isolation_level=None)
events = journal.Journal(db)
events.create_table()


# here: journal.py
db.close()
