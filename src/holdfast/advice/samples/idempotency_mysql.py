import os
from urllib.parse import urlsplit

import pymysql

from holdfast.lockfree import idempotency

# here: mysql.py
cursor.execute(
    "CREATE TABLE IF NOT EXISTS invoice (id INTEGER AUTO_INCREMENT PRIMARY KEY, order_id INTEGER, cents INTEGER)"
)
keys = idempotency.Keys(db, create=True)


@keys.idempotent(
    key=lambda request, order, cents: f"invoice:{request}", payload=lambda request, order, cents: [order, cents]
)
def make_invoice(request, order, cents):
    """Run once a request, in one transaction with its result; whoever asks again is given that result."""
    cursor.execute("INSERT INTO invoice (order_id, cents) VALUES (%s, %s)", (order, cents))
    return {"invoice": cursor.lastrowid}


# Asked twice: one invoice, and the same answer.
assert make_invoice("request-1", 123, 500) == make_invoice("request-1", 123, 500)
cursor.execute("SELECT count(*) FROM invoice")
assert cursor.fetchone() == (1,)
db.close()
