"""Mistakes that the tests of this folder must find. (Those of Django's part are with the project's own tests.)"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import holdfast as library
from holdfast.contrib import alembic, apscheduler, fastapi, http, starlette
from holdfast.contrib.celery import beat
from holdfast.contrib.pytest import Controls
from holdfast.testing.servers.redis import Redis

from . import test_alembic, test_apscheduler, test_celery, test_fastapi, test_pytest
from .test_celery import jobs

__all__ = ["jobs"]  # a fixture
pytestmark = [pytest.mark.server, *test_celery.pytestmark]


def must_find(test: Callable[..., None], *arguments: Any) -> None:
    with pytest.raises(BaseException) as found:  # noqa: PT011  # an assertion, or whatever the mistake led to
        test(*arguments)
    assert not isinstance(found.value, KeyboardInterrupt | SystemExit | TypeError), found.value


def test_a_name_of_the_text_in_the_path_is_found(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastapi, "_value", lambda request, name, field: request.path_params[field])
    must_find(test_fastapi.test_two_spellings_of_one_number_are_one_lock, redis)


def test_a_retry_after_that_is_made_up_is_found(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_left", lambda error: 60)
    must_find(test_fastapi.test_who_finds_an_order_taken_is_told_when_to_come_again, redis)


def test_an_answer_that_says_who_holds_it_is_found(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starlette, "answer", lambda error: http.answer(error)._replace(detail=str(error)))
    must_find(test_fastapi.test_locks_that_are_taken_in_the_endpoint_are_answered_too, redis)


def test_a_beat_that_sends_whatever_is_due_is_found(
    redis: Redis, jobs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beat, "SHARE", 0.0)
    must_find(test_celery.test_one_of_two_beats_beats, redis, jobs, tmp_path)


def test_a_scheduler_that_lets_go_at_once_is_found(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apscheduler, "SHARE", 0.0)
    with library.connect(redis.url) as locks:
        must_find(test_apscheduler.test_of_three_schedulers_one_runs_the_job, locks, "interval")


def test_a_turn_that_is_counted_from_a_late_start_is_found(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apscheduler._Guarded, "_taken_for", lambda self, job, due: 54.0)
    with library.connect(redis.url) as locks:
        must_find(test_apscheduler.test_a_run_that_is_late_does_not_keep_the_next_one_out, locks)


def test_a_migration_out_of_turn_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alembic, "in_turn", lambda connection: contextlib.nullcontext())
    must_find(test_alembic.test_an_upgrade_waits_for_its_turn, tmp_path)


def test_a_thief_who_is_noticed_is_found(holdfast: Controls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steal = Controls.steal

    def loudly(self: Controls, lease: Any) -> Any:
        thief = steal(self, lease)
        lease._engine.renewer.taken_away(lease._grant.claim.holder, "told")
        return thief

    monkeypatch.setattr(Controls, "steal", loudly)
    must_find(test_pytest.test_a_stolen_lock_is_believed_in_and_fenced_out, holdfast, tmp_path)
