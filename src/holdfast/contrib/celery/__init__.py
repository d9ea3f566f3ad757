"""Celery: a task that runs once at a time, and beat that may run twice. See docs/celery.md.

@app.task
@single(key="report:{account_id}", otherwise="skip")
def report(account_id): ...

$ celery -A shop beat --scheduler holdfast.contrib.celery.beat:Scheduler
"""

from .single import single

__all__ = ["single"]
