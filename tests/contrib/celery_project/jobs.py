"""Tasks for real workers. What they do is written to the same Redis."""

import os
import time

from celery import Celery

import redis
from holdfast import Lease
from holdfast.contrib.celery import single

URL = os.environ["SHOP_REDIS"]
app = Celery("jobs", broker=URL, backend=URL)
app.conf.broker_connection_retry_on_startup = True
app.conf.worker_hijack_root_logger = False
app.conf.worker_prefetch_multiplier = 1
app.conf.task_acks_late = True
app.conf.beat_schedule = {"often": {"task": "jobs.nothing", "schedule": 60.0, "options": {"queue": "beats"}}}
told = redis.Redis.from_url(URL, decode_responses=True)


def work(seconds: float) -> None:
    """Not one moment together with another, or it is told."""
    if told.incr("inside") > 1:
        told.incr("together")
    told.rpush("entered", os.getpid())
    try:
        time.sleep(seconds)
    finally:
        told.decr("inside")


@app.task
def nothing() -> None: ...


@app.task
@single(key="report:{account_id}")
def skipping(account_id: int, seconds: float, lease: Lease) -> str:
    work(seconds)
    return f"{lease.name} {lease.held}"


@app.task(bind=True, max_retries=0)
@single(key="report:{account_id}", otherwise="retry", retry_in=0.2)
def retrying(self: object, account_id: int, seconds: float) -> str:
    work(seconds)
    return "done"


@app.task
@single(key=lambda account_id, seconds: f"report:{account_id}", otherwise="wait", timeout=60)
def waiting(account_id: int, seconds: float) -> str:
    work(seconds)
    return "done"


@app.task
@single(otherwise="raise", ttl=20)
def long() -> str:
    work(60)
    return "done"
