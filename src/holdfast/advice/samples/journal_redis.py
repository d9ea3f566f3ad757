import os

import redis
from holdfast.lockfree import journal

db = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost"))
events = journal.Journal(db)


# here: journal.py
db.close()
