"""Beat that may run twice, so that it may die once: `celery beat --scheduler holdfast.contrib.celery.beat:Scheduler`.

Every beat keeps the whole schedule. Who finds an entry due first sends it; for nine tenths of the time until it is due again,
the others find it taken. So nobody has to notice that another beat died, and no entry waits for that.
"""

from __future__ import annotations

import logging
from typing import Any

from celery.beat import PersistentScheduler

from ...claim import MAX_TTL, MIN_TTL
from ...errors import NotAcquired, Unavailable
from .stores import locks_of

SHARE = 0.9  # of the time until the next run; the rest is for clocks that differ
logger = logging.getLogger("holdfast")


class Scheduler(PersistentScheduler):  # type: ignore[misc]  # Celery has no types
    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        at_least = min(max(SHARE * self._until_next(entry), 0.0), MAX_TTL)
        once = locks_of(self.app).once(
            f"celery:beat:{entry.name}", at_least=at_least, at_most=max(at_least, 60.0), otherwise="raise"
        )
        try:
            lease = once.acquire()
        except NotAcquired:
            logger.info("beat: another one sent %s", entry.name)
            return
        except Unavailable as error:
            logger.error("beat: %s is not sent, since nobody can tell whether another beat does: %s", entry.name, error)
            return
        with lease:
            try:
                self.apply_async(entry, producer=producer, advance=False)
                logger.info("beat: sent %s (%s)", entry.name, entry.task)
            except Exception:
                logger.exception("beat: %s could not be sent", entry.name)
                lease._keep_until = 0.0  # not sent, so another may

    def _until_next(self, entry: Any) -> float:
        """Seconds from now until this entry is due again."""
        return max(MIN_TTL, float(entry.schedule.is_due(entry.schedule.now()).next))
