"""The dashboard over HTTP: live, read-only, closed to others."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

import holdfast
from holdfast import dashboard
from holdfast.connecting import resolve
from holdfast.dashboard import app, looking
from holdfast.dashboard.access import Access
from holdfast.dashboard.board import Board
from holdfast.dashboard.history import History
from holdfast.errors import Misuse, Unavailable
from holdfast.secret import Secret

from ..cli.conftest import HOLDFAST
from .serving import Served, until

PAGE = files("holdfast.dashboard").joinpath("page")
TOKEN = "a token that is long enough"
STRANGE = "<script>alert(1)</script>\u202e\n"


@pytest.fixture
def served(url: str) -> Iterator[Served]:
    with Served(url) as one:
        yield one


@pytest.fixture
def page(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=30) as client:
        yield client


def acting(client: httpx.Client) -> dict[str, str]:
    """As our own page does it."""
    session = client.get("/api/session").json()
    return {session["header"]: session["csrf"], "Origin": str(client.base_url).rstrip("/")}


def names(client: httpx.Client) -> list[str]:
    return sorted(one["name"] for one in client.get("/api/state").json()["locks"])


def stream(client: httpx.Client) -> Iterator[tuple[str, dict[str, Any]]]:
    with client.stream("GET", "/api/events") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        kind = ""
        for line in response.iter_lines():
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield kind, json.loads(line.removeprefix("data: "))


def told(events: Iterator[tuple[str, dict[str, Any]]], key: str, wanted: object) -> dict[str, Any]:
    """The next message that tells of it."""
    for _, data in events:
        found = [one["name"] for one in data["locks"]] if key == "locks" else data["gone"]
        if wanted in found:
            return data
    raise AssertionError("the stream ended")


def test_what_happens_reaches_the_page_at_once(page: httpx.Client, locks: holdfast.Locks) -> None:
    there = locks.lock("there").acquire()
    until(lambda: names(page) == ["there"], "the lock to be seen")
    events = stream(page)
    kind, first = next(events)
    assert (kind, [one["name"] for one in first["locks"]]) == ("all", ["there"])
    (holder,) = first["locks"][0]["holders"]
    assert (holder["owner"], holder["token"]) == (there.owner, there.token)
    assert 0 < holder["ends"] - first["now"] <= 30
    lease = locks.lock("new").acquire()
    told(events, "locks", "new")
    lease.release()
    told(events, "gone", ["sqlite", "new"])


def test_the_nonce_never_reaches_the_page(page: httpx.Client, locks: holdfast.Locks) -> None:
    leases = [locks.lock(name).acquire() for name in ("one", "two")]
    nonces = [lease._grant.claim.holder for lease in leases]
    until(lambda: names(page) == ["one", "two"], "the locks to be seen")
    text = json.dumps(next(stream(page)))
    for path in ("/", "/api/state", "/api/history", "/api/history.jsonl", "/api/graph", "/api/session"):
        text += page.get(path).text
    assert '"token": ' in text
    assert not any(nonce in text for nonce in nonces)


def test_names_that_are_markup_arrive_as_data(page: httpx.Client, locks: holdfast.Locks) -> None:
    with locks.lock(STRANGE):
        until(lambda: names(page) == [STRANGE], "the lock to be seen")
        for path in ("/api/state", "/api/history"):
            answer = page.get(path)
            assert answer.headers["content-type"] == "application/json"
            assert answer.headers["x-content-type-options"] == "nosniff"


def test_every_answer_forbids_what_a_page_does_not_need(page: httpx.Client) -> None:
    for path in ("/", "/login", "/static/dashboard.js", "/static/../app.py", "/static/x", "/api/state", "/api/evict"):
        policy = page.get(path).headers.get("content-security-policy", "")
        if path != "/api/evict" and ".." not in path:  # the framework's own answers have no content
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
    assert page.get("/static/../app.py").status_code == page.get("/static/x").status_code == 404


def test_the_page_loads_nothing_from_elsewhere_and_makes_no_html_of_text() -> None:
    for file in PAGE.iterdir():
        name, text = file.name, file.read_text(encoding="utf-8")
        assert re.findall(r"(?:https?:|[\"'(`=])//(?!www\.w3\.org/2000/svg)\S+", text) == []
        assert re.findall(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function|srcdoc", text) == []
        if name.endswith(".html"):
            assert re.findall(r"<script(?![^>]*src=)|<style|\sstyle=|\son\w+=|@import", text) == []


def test_every_module_of_the_page_is_served_and_finds_what_it_imports(page: httpx.Client) -> None:
    modules = {file.name for file in PAGE.iterdir() if file.name.endswith(".js")}
    assert re.findall(r'<script src="static/(.*?)"', page.get("/").text) == ["dashboard.js"]
    for name in modules:
        answer = page.get(f"/static/{name}")
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/javascript; charset=utf-8")
        assert set(re.findall(r'^import .* from "\./(.*?)";$', answer.text, re.MULTILINE)) <= modules


def test_by_default_it_only_looks(page: httpx.Client, locks: holdfast.Locks) -> None:
    lease = locks.lock("mine").acquire()
    wish = {"store": "sqlite", "name": "mine", "typed": "mine", "token": lease.token}
    answer = page.post("/api/evict", json=wish, headers=acting(page))
    assert (answer.status_code, answer.json().get("error")) == (
        403,
        "this dashboard is read-only: start it with --allow-evict",
    )
    lease.renew()
    assert page.put("/api/state").status_code == page.delete("/api/evict").status_code == 405


def test_an_eviction_wants_the_name_typed_and_the_token_that_was_seen(
    url: str, locks: holdfast.Locks, caplog: pytest.LogCaptureFixture
) -> None:
    with Served(url, allow_evict=True) as served, httpx.Client(base_url=served.url, timeout=30) as page:
        lease = locks.lock("mine").acquire()
        until(lambda: names(page) == ["mine"], "the lock")  # what comes and goes between two looks is not seen
        headers = acting(page)

        def evict(**wish: object) -> httpx.Response:
            right = {"store": "sqlite", "name": "mine", "typed": "mine", "token": lease.token}
            return page.post("/api/evict", json={**right, **wish}, headers=headers)

        assert evict(typed="Mine").status_code == 400
        assert evict(store="other").status_code == 400
        for token in (True, 0, -1, "1", 2**60, None):
            assert evict(token=token).status_code == 400
        assert evict(token=lease.token - 1).json() == {"released": False, "new_token": None}
        assert "was gone already, and nobody was put out by the dashboard" in caplog.text
        assert " was put out by" not in caplog.text.replace("nobody was put out by", "")
        lease.renew()  # nothing of that has touched it
        with caplog.at_level(logging.WARNING, "holdfast.dashboard"):
            done = evict().json()
        assert done["released"]
        assert done["new_token"] > lease.token
        assert (
            f"the holder of token {lease.token} of 'mine' was put out by the dashboard, asked from 127.0.0.1"
            in caplog.text
        )
        until(lambda: [one["event"] for one in page.get("/api/history?q=evicted").json()["events"]], "the eviction")
        (event,) = page.get("/api/history?q=evicted").json()["events"]
        assert (event["token"], event["detail"].endswith("/dashboard")) == (lease.token, True)
        snapshot = locks.inspect("mine")
        assert snapshot.eviction is not None
        assert snapshot.eviction.by.endswith("/dashboard")


def test_an_eviction_that_was_not_answered_is_remembered_as_one_that_may_have_been(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        Served("redis://127.0.0.1:1?timeout=0.2", allow_evict=True) as served,
        httpx.Client(base_url=served.url) as page,
    ):
        wish = {"store": "redis", "name": "x", "typed": "x", "token": 7}
        assert page.post("/api/evict", json=wish, headers=acting(page)).status_code == 503
    assert "the holder of token 7 of 'x' was perhaps put out (the store did not say)" in caplog.text


@pytest.mark.parametrize("name", ["", "x" * 600, "a\0b", "\ud800"])
def test_of_a_name_that_no_lock_can_have_nobody_was_perhaps_put_out(
    name: str, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Served(url, allow_evict=True) as served, httpx.Client(base_url=served.url, timeout=30) as page:
        wish = json.dumps({"store": "sqlite", "name": name, "typed": name, "token": 7})
        headers = {**acting(page), "content-type": "application/json"}
        assert page.post("/api/evict", content=wish, headers=headers).status_code == 400
    assert "put out" not in caplog.text


def test_nobody_is_sent_out_of_the_path_that_a_proxy_has_before_ours(page: httpx.Client) -> None:
    """A slash at the end of an address was answered with our own one, as far as we know it."""
    for path in ("/login/", "/api/session/", "/static/index.html/"):
        assert page.get(path).status_code == 404


def test_another_site_cannot_act_with_the_visitors_cookie(url: str, locks: holdfast.Locks) -> None:
    with Served(url, allow_evict=True) as served, httpx.Client(base_url=served.url, timeout=30) as page:
        lease = locks.lock("mine").acquire()
        wish = {"store": "sqlite", "name": "mine", "typed": "mine", "token": lease.token}
        right = acting(page)
        (secret,) = (key for key in right if key != "Origin")
        wrong: list[dict[str, str]] = [
            {},
            {**right, secret: "guessed"},
            {**right, "Origin": "http://evil.example"},
            {**right, "Origin": "null"},
            {**right, "Sec-Fetch-Site": "cross-site"},
            {**right, "Sec-Fetch-Site": "same-site"},
        ]
        for headers in wrong:
            assert page.post("/api/evict", json=wish, headers=headers).status_code == 403
        form = {"Content-Type": "text/plain"}  # what a form of another site could send
        assert page.post("/api/evict", content=json.dumps(wish), headers={**right, **form}).status_code == 400
        page.cookies.clear()
        assert page.post("/api/evict", json=wish, headers=right).status_code == 403
        lease.renew()


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "localhost.evil.example", "", "127.0.0.1.evil.example"]
)
def test_a_name_of_somebody_else_that_leads_here_is_refused(page: httpx.Client, host: str) -> None:
    assert page.get("/api/state", headers={"Host": host}).status_code == 421
    assert page.get("/", headers={"Host": host}).status_code == 421


def test_this_machine_by_its_own_names_is_answered(page: httpx.Client) -> None:
    for host in ("localhost", "localhost:8377", "127.0.0.1", "[::1]:80", "[::1]"):
        assert page.get("/api/state", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("token", ["", "short"])
def test_a_token_that_is_none_or_soon_guessed_opens_nothing(token: str) -> None:
    with pytest.raises(Misuse, match="at least 16 characters"):
        dashboard.asgi("memory://", token=token)


def test_only_so_many_pages_are_told_at_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_MOST_STREAMS", 2)
    with Served(url) as served, httpx.Client(base_url=served.url, timeout=30) as page:

        def is_told() -> bool:
            with page.stream("GET", "/api/events") as response:
                return response.status_code == 200 and bool(next(response.iter_lines()))

        with page.stream("GET", "/api/events") as first, page.stream("GET", "/api/events") as second:
            lines = first.iter_lines(), second.iter_lines()  # referred to: one that is dropped hangs up
            assert [next(one) for one in lines] == ["event: all"] * 2
            assert not is_told()
            assert page.get("/api/state").status_code == 200
        until(is_told, "a page that was closed to make room")


def test_only_so_many_pages_are_told_at_once_also_of_those_who_come_together(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were counted when they began, and by then all of them had been let in."""
    monkeypatch.setattr(app, "_MOST_STREAMS", 2)
    board = dashboard.asgi(url)
    asked = {
        "type": "http",
        "method": "GET",
        "path": "/api/events",
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
    }

    async def come(told: list[int], all_told: asyncio.Event, over: asyncio.Event) -> None:
        async def receive() -> dict[str, Any]:
            await over.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                told.append(message["status"])
                if len(told) == 10:
                    all_told.set()

        await board(dict(asked), receive, send)

    async def main() -> None:
        told: list[int] = []
        all_told, over = asyncio.Event(), asyncio.Event()
        async with asyncio.timeout(20), asyncio.TaskGroup() as pages:
            for _ in range(10):
                pages.create_task(come(told, all_told, over))
            await all_told.wait()
            assert sorted(told) == [200] * 2 + [503] * 8
            over.set()
        assert board._streams == 0

    try:
        asyncio.run(main())
    finally:
        board.close()


def test_with_a_token_one_has_to_log_in(url: str) -> None:
    with Served(url, token=TOKEN) as served, httpx.Client(base_url=served.url, timeout=30) as page:
        for path in ("/api/state", "/api/events", "/api/history", "/api/session", "/api/history.jsonl", "/api/graph"):
            assert page.get(path).status_code == 401
        assert page.get("/").headers["location"] == "login"  # from where one is: a proxy may have a path before ours
        assert page.get("/login").status_code == page.get("/static/dashboard.css").status_code == 200
        assert page.post("/login", data={"token": "wrong"}).status_code == 401
        assert page.post("/login", data={"token": "x" * 10_000}).status_code == 400
        assert page.get("/api/state", headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert page.get("/api/state", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
        foreign = page.post("/login", data={"token": TOKEN}, headers={"Sec-Fetch-Site": "cross-site"})
        assert foreign.status_code == 403
        done = page.post("/login", data={"token": TOKEN}, headers={"Host": "locks.example"})
        assert done.headers["location"] == "./"
        cookie = done.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert TOKEN not in cookie
        key = cookie.partition(";")[0]
        mine = {"Cookie": key}
        assert page.get("/api/state", headers=mine).status_code == 200
        session = page.get("/api/session", headers=mine).json()
        assert page.post("/api/logout", headers={**mine, session["header"]: session["csrf"]}).status_code == 200
        assert page.get("/api/state", headers=mine).status_code == 401


def test_every_worker_knows_a_session_and_so_does_the_server_after_a_restart(url: str) -> None:
    """Which of them a question reaches is not for the page to say."""
    with Served(url, token=TOKEN) as one, Served(url, token=TOKEN) as two, Served(url, token=TOKEN[::-1]) as another:
        cookie = httpx.post(f"{one.url}/login", data={"token": TOKEN}).headers["set-cookie"].partition(";")[0]
        mine = {"Cookie": cookie}
        session = httpx.get(f"{one.url}/api/session", headers=mine).json()
        acts = {**mine, session["header"]: session["csrf"]}
        question: dict[str, Any] = {"json": {"store": "nowhere"}, "timeout": 30}
        assert httpx.get(f"{two.url}/api/state", headers=mine).status_code == 200
        assert httpx.post(f"{two.url}/api/doctor", headers=acts, **question).status_code == 400  # it was understood
        one.again()
        assert httpx.get(f"{one.url}/api/state", headers=mine).status_code == 200
        name, _, value = cookie.partition("=")
        for cookie in (f"{another.app.access.cookie}={value}", f"{name}={value}"):
            assert httpx.get(f"{another.url}/api/state", headers={"Cookie": cookie}).status_code == 401
        # Two of one machine are one host to a browser, which does not tell ports apart.
        assert name not in httpx.post(f"{another.url}/login", data={"token": TOKEN[::-1]}).headers["set-cookie"]


def test_workers_without_a_token_act_for_the_same_page(url: str) -> None:
    with Served(url) as one, Served(url) as two:
        given = httpx.get(f"{one.url}/api/session")
        session, cookie = given.json(), given.headers["set-cookie"].partition(";")[0]
        acts = {"Cookie": cookie, session["header"]: session["csrf"]}
        question: dict[str, Any] = {"json": {"store": "nowhere"}, "timeout": 30}
        assert httpx.post(f"{two.url}/api/doctor", headers=acts, **question).status_code == 400  # it was understood
        assert httpx.post(f"{two.url}/api/doctor", headers={"Cookie": cookie}, **question).status_code == 403


@pytest.mark.parametrize("token", [None, TOKEN])
def test_a_session_that_we_did_not_give_or_that_is_over_is_none(token: str | None, monkeypatch: Any) -> None:
    access = Access(Secret(token) if token else None)
    signed = access._signed

    def known(cookie: str) -> bool:
        headers = [(b"cookie", f"{access.cookie}={cookie}".encode("latin-1"))]
        return access.session(Request({"type": "http", "headers": headers})) is not None

    cookie = access.open().cookie
    ends, nonce, signature = cookie.split(".")
    assert known(cookie)
    for forged in (
        "",
        ".",
        nonce,
        f"{int(ends) + 1}.{nonce}.{signature}",
        f"{ends}.{nonce}x.{signature}",
        f"{ends}.{nonce}.",
        f"{ends}.{nonce}.{signed(f'{ends}.{nonce}')}",
        f"csrf {cookie}.{access.open().csrf}",
        "\u00e9.\u00e9.\u00e9",
        *(f"{text}.{nonce}.{signed(f'session {text}.{nonce}')}" for text in ("", "nan", "inf", "x", "9" * 5000, "1")),
    ):
        assert not known(forged)
    monkeypatch.setattr("holdfast.dashboard.access.LIFETIME", -1.0)
    assert not known(access.open().cookie)


def test_who_has_logged_out_is_told_nothing_more(url: str, locks: holdfast.Locks) -> None:
    with Served(url, token=TOKEN) as served, httpx.Client(base_url=served.url, timeout=30) as page:
        mine = {"Cookie": page.post("/login", data={"token": TOKEN}).headers["set-cookie"].partition(";")[0]}
        session = page.get("/api/session", headers=mine).json()
        with page.stream("GET", "/api/events", headers=mine) as answer:
            lines = answer.iter_lines()
            assert next(lines) == "event: all"
            assert page.post("/api/logout", headers={**mine, session["header"]: session["csrf"]}).status_code == 200
            with locks.lock("afterwards"):
                for line in lines:  # to its end, which it has
                    assert "afterwards" not in line


def test_too_large_a_question_is_refused(page: httpx.Client) -> None:
    long = page.post("/api/doctor", json={"store": "x" * 10_000}, headers=acting(page))
    assert (long.status_code, long.json()["error"]) == (400, "that is more than any question of ours")
    assert (
        page.post(
            "/api/doctor", content=b"[]", headers={**acting(page), "Content-Type": "application/json"}
        ).status_code
        == 400
    )


def test_the_doctor_can_be_asked_from_the_page(page: httpx.Client) -> None:
    found = page.post("/api/doctor", json={"store": "sqlite"}, headers=acting(page)).json()["findings"]
    assert {one["level"] for one in found} == {"ok"}
    assert page.post("/api/doctor", json={"store": "sqlite"}).status_code == 403


def test_who_waits_for_whom_is_told_with_the_deadlock(page: httpx.Client, url: str) -> None:
    def take(first: str, second: str, ready: threading.Barrier) -> None:
        with holdfast.connect(url, label=first) as mine:
            lease = mine.lock(first).acquire()
            ready.wait(20)
            with contextlib.suppress(holdfast.NotAcquired):
                mine.lock(second).acquire(timeout=20).release()
            lease.release()

    barrier = threading.Barrier(2)
    pair = [threading.Thread(target=take, args=(*two, barrier)) for two in (("a", "b"), ("b", "a"))]
    for thread in pair:
        thread.start()
    until(lambda: page.get("/api/graph").json()[0]["deadlocks"], "the deadlock")
    (graph,) = page.get("/api/graph").json()
    assert {edge["name"] for edge in graph["deadlocks"][0]} == {"a", "b"}
    with holdfast.connect(url) as other:  # let them go
        other.force_release("a", token=other.inspect("a").holders[0].token)
    for thread in pair:
        thread.join(30)


def test_a_store_that_fails_is_told_and_the_others_go_on(locks: holdfast.Locks, url: str) -> None:
    with Served("redis://:hunter2@127.0.0.1:1?timeout=0.2", url) as served, httpx.Client(base_url=served.url) as page:
        with locks.lock("here"):
            until(lambda: names(page) == ["here"], "the lock of the healthy store")
            until(lambda: page.get("/api/state").json()["stores"][0]["error"], "the trouble of the other")
        broken, healthy = page.get("/api/state").json()["stores"]
        assert "cannot connect to Redis" in broken["error"]
        assert broken["url"] == "redis://:***@127.0.0.1:1?timeout=0.2"
        assert healthy["error"] == ""
        assert healthy["traits"]["scope"] == "machine"


def test_the_history_outlives_the_dashboard_in_a_file(url: str, locks: holdfast.Locks, tmp_path: Path) -> None:
    file = tmp_path / "history.db"
    with locks.lock("once"):
        with Served(url, history=str(file)) as served, httpx.Client(base_url=served.url) as page:
            until(lambda: page.get("/api/history?q=once").json()["events"], "the event")
        assert file.stat().st_mode & 0o077 == 0
        [lease] = locks.inspect("once").holders
        with Served(url, history=str(file)) as served, httpx.Client(base_url=served.url) as page:  # it is held still
            until(lambda: page.get("/api/state").json()["locks"], "a look")
            found = page.get("/api/history?q=once").json()["events"]
            assert [(one["event"], one["token"]) for one in found] == [("acquired", lease.token)]
    with Served(url, history=str(file)) as served, httpx.Client(base_url=served.url) as page:
        lines = [json.loads(line) for line in page.get("/api/history.jsonl").text.splitlines()]
    assert ("acquired", "once") in [(one["event"], one["name"]) for one in lines]
    with pytest.raises(Misuse, match="cannot be kept"):
        dashboard.asgi(url, history=f"{tmp_path}/nowhere/history.db")


def test_it_can_be_mounted_behind_the_login_of_another_application(url: str, locks: holdfast.Locks) -> None:
    mounted = dashboard.asgi(url, interval=0.05)
    with Served(url) as served:  # for its port; another server takes it over
        port = served.port
    server = uvicorn.Server(
        uvicorn.Config(Starlette(routes=[Mount("/locks", mounted)]), port=port, log_level="critical", lifespan="off")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        until(lambda: server.started, "the application")
        with (
            httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"Host": "app.example"}) as page,
            locks.lock("x"),
        ):
            assert "static/dashboard.js" in page.get("/locks/").text
            assert page.get("/locks/static/dashboard.js").status_code == 200
            until(lambda: [one["name"] for one in page.get("/locks/api/state").json()["locks"]] == ["x"], "the lock")
            assert "Path=/locks/" in page.get("/locks/api/session").headers["set-cookie"]
    finally:
        server.should_exit = True
        thread.join(20)
        mounted.close()


def test_a_store_is_not_looked_at_oftener_than_asked_however_many_pages_come(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []
    monkeypatch.setattr(looking.Looking, "_look", lambda _: looks.append(time.monotonic()))
    one = looking.Looking("m", resolve("memory://"), Board(), History(), 0.1)

    def enough() -> bool:
        one.wake()
        return len(looks) >= 4

    until(enough, "some looks")
    one.close()
    assert min(later - earlier for earlier, later in itertools.pairwise(looks)) >= 0.09


def test_a_store_that_does_not_answer_is_soon_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []

    def fails(_: object) -> None:
        looks.append(time.monotonic())
        time.sleep(1.0)  # and then is given up: a look that took so long is followed by a rest of four times that
        raise Unavailable("no answer")

    monkeypatch.setattr(looking.Looking, "_look", fails)
    monkeypatch.setattr(looking, "SOON", 0.01)
    board = Board()
    board.watch(lambda: None)
    one = looking.Looking("x", resolve("memory://"), board, History(), 0.01)
    until(lambda: len(looks) > 1, "another look")
    one.close()
    assert looks[1] - looks[0] < 3.0


def test_without_a_page_it_rests_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []
    monkeypatch.setattr(looking, "IDLE", 0.4)
    monkeypatch.setattr(looking.Looking, "_look", lambda _: looks.append(time.monotonic()))
    one = looking.Looking("m", resolve("memory://"), Board(), History(), 0.01)
    until(lambda: len(looks) >= 2, "a second look")
    one.close()
    assert looks[1] - looks[0] >= 0.39


def test_a_page_that_opens_wakes_those_who_rest(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Whoever looked between the request and the opening of the stream saw nobody, and has gone to rest for long."""
    monkeypatch.setattr(looking, "IDLE", 3600.0)
    looks: list[float] = []
    monkeypatch.setattr(looking.Looking, "_look", lambda _: looks.append(time.monotonic()))
    app = dashboard.asgi(url, interval=0.01)
    app.start()
    until(lambda: looks, "the first look")

    async def open_it() -> None:
        opened = app._stream(Request({"type": "http", "headers": []}))
        await anext(opened)
        seen = len(looks)
        await asyncio.to_thread(until, lambda: len(looks) > seen, "another look")
        await opened.aclose()  # type: ignore[attr-defined]

    asyncio.run(asyncio.wait_for(open_it(), 20))
    app.close()


def command(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [HOLDFAST, "dashboard", *words], capture_output=True, text=True, timeout=60, env={**os.environ, **environment}
    )


def test_the_command_says_where_it_is_and_ends_with_ctrl_c(url: str) -> None:
    line = [HOLDFAST, "dashboard", url, "--listen", "127.0.0.1:0", "--also", "memory://"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        where = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
        assert where is not None
        state = httpx.get(f"{where[0]}api/state").json()
        assert [one["id"] for one in state["stores"]] == ["sqlite", "memory"]
        with httpx.stream("GET", f"{where[0]}api/events", timeout=30) as page:  # one that is open
            lines = page.iter_lines()
            assert next(lines) == "event: all"
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
        assert process.stderr.read() == ""


def test_a_page_that_is_open_does_not_keep_the_server_of_another_application(url: str, tmp_path: Path) -> None:
    """uvicorn's own: it waits, without an end, for those who are told something still."""
    (tmp_path / "served_page.py").write_text(f"import holdfast.dashboard\napp = holdfast.dashboard.asgi({url!r})\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    line = [sys.executable, "-m", "uvicorn", "served_page:app", "--app-dir", str(tmp_path), "--port", str(port)]
    with subprocess.Popen([*line, "--log-level", "critical"]) as process:

        def answers() -> bool:
            with contextlib.suppress(httpx.TransportError):
                return httpx.get(f"http://127.0.0.1:{port}/", timeout=30).status_code == 200
            return False

        until(answers, "the server")
        with httpx.stream("GET", f"http://127.0.0.1:{port}/api/events", timeout=30) as page:
            lines = page.iter_lines()
            assert next(lines) == "event: all"
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            finally:
                process.kill()


def test_an_address_that_others_reach_wants_a_token(url: str, tmp_path: Path) -> None:
    refused = command(url, "--listen", "192.0.2.1:8377")
    assert refused.returncode == 125
    assert "others can reach 192.0.2.1: say --token-file FILE" in refused.stderr
    short = tmp_path / "token"
    short.write_text("short\n")
    for done in (
        command(url, "--listen", "192.0.2.1:1", "--token-file", str(short)),
        command(url, HOLDFAST_DASHBOARD_TOKEN="short"),
    ):
        assert done.returncode == 125
        assert "at least 16 characters" in done.stderr
    assert "wants HOST:PORT" in command(url, "--listen", "nonsense").stderr


@pytest.mark.parametrize("page", ["dashboard", "lab"])
def test_an_address_that_is_taken_is_told(page: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        line = [HOLDFAST, page, "--listen", place]
        refused = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert (refused.returncode, refused.stdout) == (125, "")
    assert refused.stderr == (
        f"holdfast: cannot listen on {place}: address already in use. Say another with --listen HOST:PORT\n"
    )


def test_putting_holders_out_wants_a_token_even_on_this_machine(url: str) -> None:
    """Its other users reach the page as well, and would act with the rights of whoever started it."""
    refused = command(url, "--allow-evict")
    assert refused.returncode == 125
    assert "every user of this machine can reach 127.0.0.1" in refused.stderr
    with pytest.raises(Misuse, match="every user of this machine"):
        dashboard.asgi(url, allow_evict=True, mounted=False)


def test_hostile_questions_are_refused_and_no_fault_of_ours(url: str) -> None:
    with Served(url, allow_evict=True) as served, httpx.Client(base_url=served.url, timeout=30) as page:
        headers = {**acting(page), "content-type": "application/json"}
        assert page.post("/api/evict", content="[" * 8000, headers=headers).status_code == 400
        assert page.post("/api/evict", content='{"a":' * 1500, headers=headers).status_code == 400
        assert page.get("/api/history", params={"most": "9" * 5000}).status_code == 200


def test_without_the_extra_it_says_what_to_install(url: str) -> None:
    code = (
        "import sys; sys.modules['starlette'] = None; import holdfast.dashboard; holdfast.dashboard.asgi('memory://')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "pip install 'holdfast[dashboard]'" in done.stderr
