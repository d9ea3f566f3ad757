import os

import holdfast

locks = holdfast.connect(os.environ.get("REDIS_URL", "redis://localhost"))
with locks.lock("shipment:42", ttl=30).acquire(timeout=10) as lease:  # the ttl: well above what the work takes
    parcel = "what takes time comes first"
    lease.check()  # LeaseLost, if the lock is gone: right before the step that cannot be undone
    print("shipping:", parcel)  # a process stopped here, for longer than the ttl, would still ship
locks.close()
