import os

import redis

db = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost"))
db.set("account:42", 100, nx=True)


def withdraw(cents, attempts=10):
    """WATCH makes the write fail if anybody wrote since it was read; then it is read and decided again."""
    for _ in range(attempts):
        with db.pipeline() as pipe:
            try:
                pipe.watch("account:42")
                balance = int(pipe.get("account:42"))
                if balance < cents:
                    return False
                pipe.multi()
                pipe.set("account:42", balance - cents)
                pipe.execute()
                return True
            except redis.WatchError:
                continue
    raise RuntimeError("too many conflicts: this account is busy, let it have one writer")


assert withdraw(10)
db.close()
