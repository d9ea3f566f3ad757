"""The recipes of docs/recipes.md, with the real job queues on a real Redis."""

from __future__ import annotations

import importlib
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import holdfast
from holdfast.events import SKIPPED
from holdfast.testing.servers.redis import Redis

pytestmark = pytest.mark.server
PAGE = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text()

Write = Callable[[str], ModuleType]


@pytest.fixture
def module(tmp_path: Path, redis: Redis, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """A file of the page, imported as a worker does."""
    monkeypatch.setenv("REDIS_URL", redis.url)
    monkeypatch.syspath_prepend(tmp_path)
    made: list[ModuleType] = []

    def write(name: str) -> ModuleType:
        code = re.search(rf"^```python\n(# {name}.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
        assert code is not None
        (tmp_path / f"{name}.py").write_text(code[1])
        made.append(importlib.import_module(name))
        return made[-1]

    yield write
    for one in made:
        one.locks.close()
        del sys.modules[one.__name__]


def test_a_job_of_rq_is_skipped_while_another_worker_is_at_it(redis: Redis, module: Write) -> None:
    from rq import Queue, SimpleWorker

    from redis import Redis as Client

    jobs = module("jobs_for_rq")
    client = Client.from_url(redis.url)
    queue = Queue(connection=client)
    worker = SimpleWorker([queue], connection=client)
    with holdfast.connect(redis.url) as others, others.lock("report:1"):
        skipped, other = queue.enqueue(jobs.report, 1), queue.enqueue(jobs.report, 2)
        worker.work(burst=True, logging_level="ERROR")
        assert [skipped.return_value(), other.return_value()] == [None, "sent"]
    again = queue.enqueue(jobs.report, 1)
    worker.work(burst=True, logging_level="ERROR")
    assert again.return_value() == "sent"
    assert jobs.runs == [2, 1]
    client.close()


def test_an_actor_of_dramatiq_is_tried_again_when_the_other_has_ended(redis: Redis, module: Write) -> None:
    import dramatiq

    jobs = module("jobs_for_dramatiq")
    broker = dramatiq.get_broker()
    worker = dramatiq.Worker(broker, worker_timeout=50, worker_threads=1)
    with holdfast.connect(redis.url) as others:
        with others.lock("report:1"):
            refused = threading.Event()
            jobs.locks.subscribe(lambda _: refused.set(), [SKIPPED])
            jobs.report.send(1)
            worker.start()
            assert refused.wait(30)
            assert jobs.runs == []
        broker.join("default", timeout=30_000)
    worker.stop()
    broker.close()
    assert jobs.runs == [1]


def test_an_actor_of_dramatiq_waits_for_as_long_as_it_takes(redis: Redis, module: Write) -> None:
    """Dramatiq counts every wait as a retry, and drops a message after twenty."""
    import dramatiq
    from dramatiq.broker import MessageProxy
    from dramatiq.errors import Retry
    from dramatiq.middleware import Retries

    jobs = module("jobs_for_dramatiq")
    broker = dramatiq.get_broker()
    (retries,) = [one for one in broker.middleware if isinstance(one, Retries)]
    for error, dropped in [(Retry("taken", delay=1000), False), (ValueError("a failure of its own"), True)]:
        message = MessageProxy(jobs.report.message(1))
        message.options["retries"] = 25
        retries.after_process_message(broker, message, exception=error)  # type: ignore[no-untyped-call]
        assert message.failed is dropped
    broker.flush_all()
    broker.close()
