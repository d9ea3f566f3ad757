"""Processes that tell a dashboard of themselves: observe=["dashboard"]."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, MutableMapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

import holdfast
import holdfast.dashboard
from holdfast import events
from holdfast.dashboard.access import Access
from holdfast.dashboard.told import MOST_A_SECOND, Bound, News
from holdfast.events import refusals
from holdfast.observe import dashboard as sending
from holdfast.observe.changes import Change
from holdfast.observe.dashboard import Dashboard

from .serving import Served, until

EVENT = {"kind": "lost", "name": "x", "owner": "me", "token": 7, "seconds": 1.5, "detail": "why", "system": "sqlite"}


def seen(served: Served, **wanted: Any) -> list[dict[str, Any]]:
    return [one for one in served.app.history.find() if wanted.items() <= one.items()]


def post(served: Served, events: Any, **headers: str) -> httpx.Response:
    body = json.dumps({"events": events})  # ASCII, whatever is in it
    kind = {"content-type": "application/json", **headers}
    return httpx.post(f"{served.url}/api/told", content=body, headers=kind, timeout=30)


def test_what_comes_and_goes_between_two_looks_is_told(url: str) -> None:
    with Served(url, interval=30.0) as served, holdfast.connect(url, observe=[Dashboard(served.url)]) as locks:
        httpx.get(served.url)
        until(lambda: served.app.board.since(0)["stores"][0]["system"], "the first look")
        with locks.lock("brief") as lease:
            pass
        with locks.lock("held"), pytest.raises(holdfast.NotAcquired):
            holdfast.connect(url, observe=[Dashboard(served.url)]).lock("held").acquire(timeout=0)
        until(lambda: seen(served, event="not acquired", name="held"), "the refusal to wait")
        until(
            lambda: seen(served, event="over", name="brief"), "the end of the brief one"
        )  # the two senders are not in step
        assert seen(served, event="acquired", name="brief", token=lease.token, store="sqlite")
        [over] = seen(served, event="over", name="brief")
        assert over["token"] == lease.token


def test_what_was_seen_by_looking_is_not_told_twice(url: str) -> None:
    with Served(url) as served, holdfast.connect(url, observe=[Dashboard(served.url)]) as locks:
        httpx.get(served.url)
        lease = locks.lock("x").acquire()
        until(lambda: seen(served, event="acquired"), "the look")
        lease.release()
        until(lambda: seen(served, event="over"), "the end")
        locks.lock("marker").acquire().release()
        until(lambda: seen(served, event="over", name="marker"), "what was sent after it")
        assert len(seen(served, event="acquired", name="x")) == len(seen(served, event="over", name="x")) == 1


def test_a_refusal_is_on_the_page_of_its_lock_whatever_the_store(url: str) -> None:
    with Served(url) as served, holdfast.connect(url, observe=[Dashboard(served.url)]):
        refusals.emit("refused", "invoice:7", token=3, detail="seen 5")
        until(lambda: seen(served, event="refused"), "the refusal")
        found = httpx.get(f"{served.url}/api/history?store=sqlite&name=invoice:7").json()["events"]
        assert [(one["event"], one["token"], one["detail"]) for one in found] == [("refused", 3, "seen 5")]


def test_of_two_stores_of_one_kind_the_one_that_has_the_name_is_meant_or_none(tmp_path: Path) -> None:
    urls = [f"sqlite://{tmp_path}/{one}.db" for one in ("one", "two")]
    with Served(*urls) as served, holdfast.connect(urls[1]) as second:
        httpx.get(served.url)
        until(lambda: len(served.app.board.of_kind("sqlite")) == 2, "the first looks")
        with second.lock("mine"):
            until(lambda: served.app._looking["sqlite 2"].seen("mine"), "the lock to be seen")
            post(served, [{**EVENT, "name": "mine"}, {**EVENT, "name": "whose"}])
        assert {one["store"] for one in seen(served, event="lost", name="mine")} == {"sqlite 2"}
        assert {one["store"] for one in seen(served, event="lost", name="whose")} == {"sqlite ?"}
        for store in ("sqlite", "sqlite 2"):  # so it is on the page of both: it may be of either
            assert [one["event"] for one in served.app.history.find(store=store, name="whose")] == ["over", "lost"]


def test_an_event_with_words_that_fit_no_message_costs_no_other_event(url: str) -> None:
    with Served(url, interval=30.0) as served:
        told = Dashboard(served.url)
        broken = events.Event("failed", "x", "me", 0, 1.0, "no file caf\udce9" + "\x1b" * 9000, "mutex", "sqlite")
        told._post([broken, broken._replace(name="y", detail="fine")])
        assert told.dropped == 0
        assert [(one["name"], one["detail"][:12]) for one in seen(served)] == [("y", "fine"), ("x", "no file caf?")]


def test_a_short_process_has_told_all_when_it_ends(url: str) -> None:
    program = f"import holdfast\nwith holdfast.connect({url!r}) as locks, locks.lock('brief'): pass"
    with Served(url, interval=30.0) as served:
        told = {**os.environ, "HOLDFAST_OBSERVE": "dashboard", "HOLDFAST_DASHBOARD": served.url}
        subprocess.run([sys.executable, "-c", program], env=told, check=True, timeout=60)
        until(lambda: seen(served, event="over", name="brief"), "its release")


def test_a_command_under_a_lock_is_told_of_too(url: str) -> None:
    with Served(url, interval=30.0) as served:
        httpx.get(served.url)
        until(lambda: served.app.board.since(0)["stores"][0]["system"], "the first look")
        told = {**os.environ, "HOLDFAST_OBSERVE": "dashboard", "HOLDFAST_DASHBOARD": served.url}
        words = [sys.executable, "-m", "holdfast", "run", "job", "--url", url, "--", "true"]
        subprocess.run(words, env=told, check=True, timeout=60)
        until(lambda: seen(served, event="over", name="job", store="sqlite"), "what the command's run had to tell")


def test_nobody_waits_for_a_dashboard_that_is_away_and_nothing_piles_up(url: str) -> None:
    away = Dashboard("http://127.0.0.1:1")
    with holdfast.connect(url, observe=[away]) as locks:
        began = time.monotonic()
        for number in range(300):
            locks.lock(f"n:{number}").acquire().release()
        assert time.monotonic() - began < 60
        until(lambda: away.dropped, "events to be dropped")
        locks.lock("later").acquire().release()
        assert len(away._waiting) <= 5 * sending.BATCH
        assert away.dropped > 100


def test_it_is_told_again_when_the_dashboard_is_back(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "_AWAY", (0.2, 0.2))
    with Served(url, interval=30.0) as served:
        told = Dashboard(served.url)
        with holdfast.connect(url, observe=[told]) as locks:
            served.stop()
            locks.lock("lost").acquire().release()
            until(lambda: told.dropped, "what was told meanwhile to be dropped")
            served._start()

            def again() -> bool:
                locks.lock("again").acquire().release()
                return bool(seen(served, name="again"))

            until(again, "what is told now")
            assert not seen(served, name="lost")


@pytest.mark.parametrize(
    "events",
    [
        "no list",
        ["no event"],
        [{**EVENT, "kind": "nonsense"}],
        [{**EVENT, "name": 3}],
        [{**EVENT, "name": "x" * 600}],
        [{**EVENT, "token": -1}],
        [{**EVENT, "token": 2**60}],
        [{**EVENT, "token": True}],
        [{**EVENT, "seconds": "long"}],
        [{**EVENT, "seconds": -1}],
        [{**EVENT, "seconds": 10**400}],
        [{**EVENT, "name": "\ud800"}],
        [{key: value for key, value in EVENT.items() if key != "owner"}],
    ],
)
def test_what_is_no_event_is_refused_whole(events: Any, url: str) -> None:
    with Served(url) as served:
        assert post(served, [EVENT, *events] if isinstance(events, list) else events).status_code == 400
        assert seen(served) == []


def test_what_is_told_is_bounded_and_harmless(url: str) -> None:
    with Served(url, interval=30.0) as served:
        nasty = {**EVENT, "owner": "evil\x1b[31m", "detail": "\x07" * 5000, "system": "<script>"}
        assert post(served, [nasty]).json()["taken"] == 2  # that it was lost, and that it is over
        for one in seen(served, name="x"):
            assert "\x1b" not in one["owner"]
            assert len(one["detail"]) < 1100
        flood = {"content": b"{" * 600_000, "headers": {"content-type": "application/json"}}
        assert httpx.post(f"{served.url}/api/told", **flood).status_code == 400  # type: ignore[arg-type]


def test_so_many_are_taken_in_a_second_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    bound, now = Bound(), 10.0
    monkeypatch.setattr("holdfast.dashboard.told.time.monotonic", lambda: now)
    assert [bound.take(600) for _ in range(3)] == [600, MOST_A_SECOND - 600, 0]
    now = 11.0
    assert bound.take(600) == 600


def by_browsers(url: str) -> None:
    with Served(url) as served:
        assert post(served, [EVENT], origin=served.url).status_code == 403
        assert post(served, [EVENT], **{"sec-fetch-site": "same-origin"}).status_code == 403
        assert post(served, [EVENT], host="evil.example").status_code == 403
        plain = httpx.post(f"{served.url}/api/told", content=b'{"events": []}', headers={"content-type": "text/plain"})
        assert plain.status_code == 400
        assert seen(served) == []


def by_strangers(url: str) -> None:
    token = "a token that is long enough"
    with Served(url, token=token, interval=30.0) as served:
        assert post(served, [EVENT]).status_code == 403
        assert post(served, [EVENT], authorization="Bearer nonsense").status_code == 403
        assert post(served, [EVENT], authorization=f"Bearer {token}").json()["taken"] == 2
        told = Dashboard(served.url, token)
        assert token not in repr(told) + repr(vars(told))
        with holdfast.connect(url, observe=[told]) as locks:
            locks.lock("mine").acquire().release()
            until(lambda: seen(served, event="over", name="mine"), "what is told with the token")


def where_it_is_mounted(url: str) -> None:
    with Served(url, mounted=True) as served:
        assert post(served, [EVENT]).status_code == 403


WHO = [by_browsers, by_strangers, where_it_is_mounted]


@pytest.mark.parametrize("test", WHO)
def test_only_processes_of_this_machine_or_with_the_token_may_tell(test: Callable[[str], None], url: str) -> None:
    test(url)


@pytest.mark.parametrize("test", WHO)
def test_a_door_that_is_left_open_is_noticed(
    test: Callable[[str], None], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Access, "may_tell", lambda *_: True)
    with pytest.raises(AssertionError):
        test(url)


def test_events_that_looking_sees_are_news_once() -> None:
    news, one = News(), Change("over", "x", "me", 7, 1.0)
    assert news.fresh("redis", [one]) == [one]
    assert news.fresh("redis", [one]) == []
    assert news.fresh("etcd", [one]) == [one]
    anonymous = Change("waiting", "x", "me")
    assert news.fresh("redis", [anonymous, anonymous]) == [anonymous, anonymous]


def test_the_token_goes_to_the_dashboard_and_to_nobody_it_would_send_us_to() -> None:
    asked: list[str | None] = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.headers["Authorization"])
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{server.server_port}/elsewhere")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        told = Dashboard(f"http://127.0.0.1:{server.server_port}", token="of this one")
        told._post([])
        server.shutdown()
    assert asked == ["Bearer of this one"]


@pytest.mark.parametrize("address", ["http://127.0.0.1:{}", "http://localhost:{}", "http://[::1]:{}"])
def test_what_is_for_this_machine_goes_through_no_proxy(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy, socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        proxy.setblocking(False)
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        monkeypatch.delenv("no_proxy", raising=False)
        Dashboard(address.format(nobody.getsockname()[1]), token="of this one")._post([])
        with pytest.raises(BlockingIOError):
            proxy.accept()


def test_an_address_that_makes_no_sense_is_refused_without_its_password() -> None:
    with pytest.raises(holdfast.Misuse) as refused:
        Dashboard("ftp://me:sesame@host")
    assert "sesame" not in str(refused.value)
    assert "sesame" not in repr(Dashboard("http://me:sesame@host"))


def test_who_hangs_up_in_the_middle_is_no_error_of_the_servers(url: str) -> None:
    """Else everybody who may send could fill its log with tracebacks."""
    app = holdfast.dashboard.asgi(url, mounted=False)
    pieces: list[dict[str, Any]] = [
        {"type": "http.request", "body": b'{"events": [', "more_body": True},
        {"type": "http.disconnect"},
    ]
    answered: list[int] = []

    async def receive() -> dict[str, Any]:
        return pieces.pop(0)

    async def send(message: MutableMapping[str, Any]) -> None:
        answered.append(message.get("status", 0))

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    about = {"type": "http", "method": "POST", "path": "/api/told", "query_string": b"", "headers": headers}
    asyncio.run(app(about, receive, send))
    app.close()
    assert answered[0] == 400
