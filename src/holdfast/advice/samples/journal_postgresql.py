import os

import psycopg

from holdfast.lockfree import journal

db = psycopg.connect(os.environ.get("POSTGRESQL_URL", "postgresql://localhost/shop"), autocommit=True)
events = journal.Journal(db)
events.create_table()


# here: journal.py
db.close()
