import os

import redis

db = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost"))


def make_invoice(request, order_id, cents):
    """Called twice for one request, it makes one invoice: SET … NX refuses the second."""
    db.set(f"invoice:{request}", f"{order_id} {cents}", nx=True, ex=7 * 86400)
    return db.get(f"invoice:{request}")


assert make_invoice("request-1", 123, 500) == b"123 500"
assert make_invoice("request-1", 123, 500) == b"123 500"  # repeated: the same answer, no second invoice
db.close()
