"""APScheduler 3: as many schedulers as you like, and every job runs once. See docs/apscheduler.md.

scheduler = BackgroundScheduler(executors={"default": OnceExecutor(locks)})
scheduler.add_job(report, "cron", hour=3, id="report")        # the same id in every process
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from concurrent.futures import Future
from datetime import datetime
from typing import Any

from ..errors import Misuse, NotAcquired, NotInstalled

try:
    from apscheduler.executors.pool import ThreadPoolExecutor
except ModuleNotFoundError as error:
    if error.name != "apscheduler.executors.pool":
        raise
    raise NotInstalled(
        "OnceExecutor is for APScheduler 3, and another version is installed: decorate the job instead, "
        '@locks.once("report", at_least=60); see docs/apscheduler.md'
    ) from None

from ..claim import MAX_TTL
from ..sync import LockOr, Locks

__all__ = ["OnceExecutor"]

SHARE = 0.9  # of the time until the next run; the rest is for clocks that differ
ALONE = 60.0  # seconds, for a job that has no next run
_MADE_UP = re.compile(r"[0-9a-f]{32}")  # by APScheduler, for a job without an id: another one in every process


class OnceExecutor(ThreadPoolExecutor):  # type: ignore[misc]  # APScheduler has no types
    """Runs jobs in threads. Of all schedulers that find a job due, one runs it; the others skip it, and say so in the log.

    The job stays taken for nine tenths of the time until its next run, and for as long as it runs (`at_most` seconds).
    """

    def __init__(self, locks: Locks, max_workers: int = 10, *, at_most: float = 3600.0) -> None:
        if not isinstance(locks, Locks):
            raise Misuse(f"OnceExecutor takes what holdfast.connect(url) returns, not {type(locks).__name__}")
        super().__init__(max_workers)
        self._pool: _Guarded = _Guarded(self._pool, locks, at_most)


class _Guarded:
    """The pool that an executor submits its jobs to."""

    def __init__(self, pool: Any, locks: Locks, at_most: float) -> None:
        self._pool = pool
        self._locks = locks
        self._at_most = at_most

    def submit(
        self, run_job: Callable[..., Any], job: Any, jobstore: str, run_times: list[datetime], logger: str
    ) -> Future[Any]:
        if _MADE_UP.fullmatch(job.id):
            raise Misuse(
                f"the job {job.name!r} has no id, so other schedulers cannot know that it is the same: add_job(…, id=…)"
            )
        if inspect.iscoroutinefunction(job.func):
            raise Misuse(
                f"the job {job.name!r} is a coroutine function, and this executor has threads: decorate the job with locks of "
                "holdfast.aio instead, and leave the executor as it was"
            )
        until = self._taken_for(job, run_times[-1])

        def run() -> Any:
            return run_job(job, jobstore, run_times, logger)

        run.__qualname__ = job.name  # which is what the log says was skipped
        once: LockOr[Any] = self._locks.once(
            f"apscheduler:{job.id}", at_least=until, at_most=max(until, self._at_most), otherwise=_no_events
        )
        future: Future[Any] = self._pool.submit(once(run))
        return future

    def _taken_for(self, job: Any, due: datetime) -> float:
        """Counted from when it was due, not from now: a late run must not keep the next one out."""
        following = job.trigger.get_next_fire_time(due, due)
        late = (datetime.now(due.tzinfo) - due).total_seconds()
        whole = ALONE if following is None else SHARE * (following - due).total_seconds()
        return min(max(whole - late, 0.0), MAX_TTL)

    def shutdown(self, wait: bool = True) -> None:
        self._pool.shutdown(wait)


def _no_events(error: NotAcquired) -> list[Any]:
    """What the scheduler's listeners are told of a run that did not take place."""
    return []
