import os

import holdfast
import redis
from holdfast import fenced

url = os.environ.get("REDIS_URL", "redis://localhost")
db = redis.Redis.from_url(url)

locks = holdfast.connect(url)
with locks.lock("stock:42") as lease:
    guarded = fenced.Redis(db, lease)  # each command carries the token: StaleToken, if somebody newer was here
    pieces = int(guarded.get("stock:42") or 100)
    guarded.set("stock:42", pieces - 1)
locks.close()
db.close()
