import os

import redis
from holdfast.lockfree import optimistic

db = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost"))
accounts = optimistic.Redis(db)  # a hash is the row; the field `version` is added to it
accounts.update("account:42", lambda row: None if row else {"balance": 100})


def withdraw(cents):
    """Written only if nobody wrote since it was read; else read and decided again; `Conflict` in the end."""

    def decide(row):  # may be called several times: let it compute, and do nothing else
        if int(row["balance"]) < cents:
            raise ValueError("not enough money")  # nothing is written
        return {"balance": int(row["balance"]) - cents}

    return accounts.update("account:42", decide)


assert withdraw(10)["balance"] <= 90
db.close()
