"""Events into logging: everything once, and what is alarming even if nobody asked."""

from __future__ import annotations

import logging
import time

import pytest

import holdfast
from holdfast.observe import log_events


def lose_one(locks: holdfast.Locks) -> None:
    lease = locks.lock("x", ttl=0.05, renew=False).acquire()
    time.sleep(0.06)
    lease.release()


def test_a_loss_is_logged_once_whoever_asked_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "holdfast")
    with holdfast.connect("memory://logged") as locks:
        lose_one(locks)
        stop = log_events(locks)
        lose_one(locks)
        stop()
    told = [(record.levelname, record.getMessage().split()[0]) for record in caplog.records]
    assert told == [("ERROR", "lost"), ("DEBUG", "acquired"), ("ERROR", "lost")]
    assert "its ttl of 0.05 s ran out" in caplog.text


def test_a_logger_of_ones_own_is_told_everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "mine")
    with holdfast.connect("memory://own logger") as locks:
        log_events(locks, logging.getLogger("mine"))
        lose_one(locks)
    mine = [record.getMessage().split()[0] for record in caplog.records if record.name == "mine"]
    assert mine == ["acquired", "lost"]
