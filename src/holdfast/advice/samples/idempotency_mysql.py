import os
from urllib.parse import urlsplit

import pymysql

url = urlsplit(os.environ.get("MYSQL_URL", "mysql://root@localhost/shop"))
where = {"host": url.hostname, "port": url.port or 3306, "database": url.path.lstrip("/")}
db = pymysql.connect(user=url.username or "root", password=url.password or "", autocommit=True, **where)
cursor = db.cursor()
cursor.execute("CREATE TABLE IF NOT EXISTS invoice (request VARCHAR(200) PRIMARY KEY, order_id INTEGER, cents INTEGER)")


def make_invoice(request, order_id, cents):
    """Called twice for one request, it makes one invoice: the unique key refuses the second."""
    cursor.execute("INSERT IGNORE INTO invoice VALUES (%s, %s, %s)", (request, order_id, cents))
    cursor.execute("SELECT order_id, cents FROM invoice WHERE request = %s", (request,))
    return cursor.fetchone()


assert make_invoice("request-1", 123, 500) == (123, 500)
assert make_invoice("request-1", 123, 500) == (123, 500)  # repeated: the same answer, no second invoice
cursor.execute("SELECT count(*) FROM invoice WHERE request = 'request-1'")
assert cursor.fetchone() == (1,)
db.close()
