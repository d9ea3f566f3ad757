"""`@single`: below `@app.task`, so that what a worker runs is the guarded function."""

from __future__ import annotations

from collections.abc import Callable
from random import uniform
from typing import Any, Literal, NoReturn

from celery import current_app, current_task
from celery.exceptions import Reject, Retry

from ...claim import valid_timeout
from ...decorating import Key
from ...errors import Misuse, NotAcquired
from ...recipes import DEFAULT_TTL, UNSET, Unset
from ..late import Late
from .stores import locks_of

Otherwise = Literal["skip", "retry", "wait", "raise"]


def single(
    name: str | Unset = UNSET,
    *,
    key: str | Key | None = None,
    otherwise: Otherwise = "skip",
    ttl: float = DEFAULT_TTL,
    timeout: float | None = None,
    retry_in: float = 5.0,
) -> Late[Any]:
    """One run at a time, on all workers. The name, or `key`, is made of the task's arguments, `"report:{account_id}"`, or by a
    function of them; without either it is the function's own. A task with a parameter `lease` is given the lease.

    `otherwise`, if it runs already: "skip" returns None, and says so in the log; "retry" sends it again, to run in about
    `retry_in` seconds, and does not count as one of the task's own retries; "wait" waits in the worker, `timeout` seconds at most
    (None: for ever), and then raises NotAcquired; "raise" raises it at once. `ttl`: how long the lock outlives a worker that
    was killed.
    """
    if otherwise not in ("skip", "retry", "wait", "raise"):
        raise Misuse(f'otherwise must be "skip", "retry", "wait" or "raise", not {otherwise!r:.80}')
    if timeout is not None and otherwise != "wait":
        raise Misuse(f'timeout is how long otherwise="wait" waits; {otherwise!r} does not')
    if isinstance(key, str):  # as users of celery-once and celery-singleton expect it
        if name is not UNSET:
            raise Misuse(f"give a name or a key, not both: {name!r:.80}")
        name, key = key, None
    pause = valid_timeout(retry_in) or 0.0
    options: dict[str, Any] = {"key": key, "ttl": ttl, "timeout": timeout if otherwise == "wait" else 0}
    if name is not UNSET:
        options["name"] = name
    if otherwise == "skip":
        options["otherwise"] = "skip"
    elif otherwise == "retry":
        options["otherwise"] = _again(pause)
    return Late(lambda _: locks_of(current_app), lambda locks: locks.lock(**options), name, key)


def _again(pause: float) -> Callable[[NotAcquired], NoReturn]:
    def send_again(error: NotAcquired) -> NoReturn:
        task = current_task._get_current_object() if current_task else None
        if task is None or task.request.called_directly or task.request.is_eager:
            raise error  # there is no queue to send it to
        request = task.request
        # Not task.retry(): that would use up the task's own retries, which are for failures.
        countdown = uniform(pause / 2, pause * 3 / 2)
        again = task.signature_from_request(request, countdown=countdown, retries=request.retries)
        try:
            again.apply_async()
        except Exception as trouble:  # the broker did not take it: the message at hand goes back instead
            raise Reject(trouble, requeue=True) from trouble
        raise Retry(exc=error, when=countdown, sig=again)

    return send_again
