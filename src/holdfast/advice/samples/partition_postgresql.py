import os

import psycopg

from holdfast.lockfree import partition

db = psycopg.connect(os.environ.get("POSTGRESQL_URL", "postgresql://localhost/shop"), autocommit=True)
queue = partition.Queue(db, "orders")
queue.create_table()

queue.put("customer:42", {"cents": 10})
queue.put("customer:42", {"cents": 20})

# In each worker. A partition is in the hands of one at a time, so the messages of a customer come in order.
for message in queue.consume(timeout=1):
    print(message.key, message.data)  # write under message.ticket: fenced storage refuses whoever was overtaken
db.close()
