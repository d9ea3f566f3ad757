import sqlite3

db = sqlite3.connect("shop.db", isolation_level=None)
db.execute("CREATE TABLE IF NOT EXISTS invoice (request TEXT PRIMARY KEY, order_id INTEGER, cents INTEGER)")


def make_invoice(request, order_id, cents):
    """Called twice for one request, it makes one invoice: the unique key refuses the second."""
    db.execute("INSERT INTO invoice VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (request, order_id, cents))
    return db.execute("SELECT order_id, cents FROM invoice WHERE request = ?", (request,)).fetchone()


assert make_invoice("request-1", 123, 500) == (123, 500)
assert make_invoice("request-1", 123, 500) == (123, 500)  # repeated: the same answer, no second invoice
assert db.execute("SELECT count(*) FROM invoice WHERE request = 'request-1'").fetchone() == (1,)
db.close()
