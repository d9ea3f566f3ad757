import sqlite3

from holdfast.lockfree import idempotency

db = sqlite3.connect("shop.db", isolation_level=None)
db.execute("CREATE TABLE IF NOT EXISTS invoice (id INTEGER PRIMARY KEY, order_id INTEGER, cents INTEGER)")
keys = idempotency.Keys(db, create=True)


@keys.idempotent(
    key=lambda request, order, cents: f"invoice:{request}", payload=lambda request, order, cents: [order, cents]
)
def make_invoice(request, order, cents):
    """Run once a request, in one transaction with its result; whoever asks again is given that result."""
    made = db.execute("INSERT INTO invoice (order_id, cents) VALUES (?, ?)", (order, cents))
    return {"invoice": made.lastrowid}


# Asked twice: one invoice, and the same answer.
assert make_invoice("request-1", 123, 500) == make_invoice("request-1", 123, 500)
assert db.execute("SELECT count(*) FROM invoice").fetchone() == (1,)
db.close()
