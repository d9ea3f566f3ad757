"""Doors that were left open on purpose: each of these mistakes is noticed by a test of the dashboard."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

import holdfast
from holdfast.dashboard.access import Access
from holdfast.dashboard.app import Dashboard

from . import test_http
from .serving import Served


def foreign_sites(url: str, locks: holdfast.Locks) -> None:
    test_http.test_another_site_cannot_act_with_the_visitors_cookie(url, locks)


def strangers(url: str, locks: holdfast.Locks) -> None:
    test_http.test_with_a_token_one_has_to_log_in(url)


def other_names(url: str, locks: holdfast.Locks) -> None:
    with Served(url) as served, httpx.Client(base_url=served.url, timeout=30) as page:
        test_http.test_a_name_of_somebody_else_that_leads_here_is_refused(page, "evil.example")


def only_looks(url: str, locks: holdfast.Locks) -> None:
    with Served(url) as served, httpx.Client(base_url=served.url, timeout=30) as page:
        test_http.test_by_default_it_only_looks(page, locks)


@pytest.mark.parametrize(
    ("where", "name", "test"),
    [
        (Access, "may_act", foreign_sites),
        (Access, "may_look", strangers),
        (Access, "is_token", strangers),
        (Access, "is_host_right", other_names),
        (Access, "session", strangers),
    ],
)
def test_a_door_that_is_left_open_is_noticed(
    where: type,
    name: str,
    test: Callable[[str, holdfast.Locks], None],
    url: str,
    locks: holdfast.Locks,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(where, name, lambda *_: True)
    with pytest.raises((AssertionError, holdfast.LeaseLost)):
        test(url, locks)


def test_a_dashboard_that_evicts_though_it_was_not_told_to_is_noticed(
    url: str, locks: holdfast.Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Dashboard, "allow_evict", property(lambda _: True, lambda *_: None), raising=False)
    with pytest.raises((AssertionError, holdfast.LeaseLost)):
        only_looks(url, locks)
