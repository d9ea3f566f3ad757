import os

import redis
from holdfast.lockfree import idempotency

db = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost"))
keys = idempotency.Keys(db)


@keys.idempotent(
    key=lambda request, order, cents: f"invoice:{request}", payload=lambda request, order, cents: [order, cents]
)
def make_invoice(request, order, cents):
    """Run once a request; whoever asks again is given its result. Redis keeps that after the effect: should the process die in
    between, the next one runs it again. So let the effect be the same the second time, as it is here."""
    db.hset(f"invoice:{request}", mapping={"order": order, "cents": cents})
    return {"invoice": f"invoice:{request}"}


# Asked twice: one invoice, and the same answer.
assert make_invoice("request-1", 123, 500) == make_invoice("request-1", 123, 500)
db.close()
