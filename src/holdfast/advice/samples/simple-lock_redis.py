import os

import holdfast

locks = holdfast.connect(os.environ.get("REDIS_URL", "redis://localhost"))


@locks.once("report:daily", at_least=60)  # one of many schedulers runs it; the others skip
def report():
    return "made"


report()
locks.close()
