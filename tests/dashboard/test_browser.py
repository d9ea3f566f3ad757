"""The page in a real Chromium: Debian's, driven by playwright. Left out, with a word, where there is none."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Literal

import pytest

import holdfast
from holdfast.testing import servers

from ..browsing import Browser, Page, accessible, browser, expect, watched
from .serving import Served, churning, until

__all__ = ["browser"]
pytestmark = pytest.mark.server  # of its kind: a browser is started, and once is enough
STRANGE = "<img src=x onerror=alert(1)><script>alert(2)</script>"


@pytest.fixture
def served(url: str) -> Iterator[Served]:
    with Served(url, allow_evict=True) as one:
        yield one


@pytest.fixture
def page(browser: Browser, served: Served) -> Iterator[Page]:
    with watched(browser, served.url) as one:
        yield one


@pytest.fixture
def stuck(url: str) -> Iterator[None]:
    """Two who wait for each other, and one who waits for them."""
    end, ready = threading.Event(), threading.Barrier(2)

    def take(first: str, second: str) -> None:
        with holdfast.connect(url, label=f"transfer {first}") as mine:
            lease = mine.lock(first).acquire()
            ready.wait(20)
            mine.lock(second).acquire(cancel=end) if not end.is_set() else None
            lease.release()

    def guarded(first: str, second: str) -> None:
        try:
            take(first, second)
        except holdfast.HoldfastError:
            return

    pair = [
        threading.Thread(target=guarded, args=two, name=f"t-{two[0]}") for two in (("alice", "bob"), ("bob", "alice"))
    ]
    for thread in pair:
        thread.start()
    yield
    end.set()
    for thread in pair:
        thread.join(30)


def rows(page: Page) -> list[str]:
    return page.locator("#locks a.name").all_inner_texts()


def test_locks_come_and_go_by_themselves_and_can_be_filtered_and_sorted(page: Page, locks: holdfast.Locks) -> None:
    expect(page.locator("#main")).to_contain_text("No locks are in use.")
    one, two = (locks.lock(name).acquire() for name in ("invoice:1", "report"))
    expect(page.locator("#locks tbody tr")).to_have_count(2)
    expect(page.locator("#locks")).to_contain_text(str(one.token))
    page.keyboard.press("/")
    page.keyboard.type("repo")
    expect(page.locator("#locks tbody tr")).to_have_count(1)
    page.fill("#filter", "nothing like it")
    expect(page.locator("#main")).to_contain_text("No lock matches.")
    page.fill("#filter", "")
    expect(page.locator("#locks tbody tr")).to_have_count(2)
    page.click("text=Token")
    assert rows(page) == ["invoice:1", "report"]
    page.click("text=Token")
    assert rows(page) == ["report", "invoice:1"]
    expect(page.locator("th[aria-sort=descending]")).to_have_text("Token")
    two.release()
    expect(page.locator("#locks tbody tr")).to_have_count(1)


def test_bars_shrink_while_nobody_renews(page: Page, locks: holdfast.Locks) -> None:
    lease = locks.lock("x", ttl=60).acquire()
    bar = page.locator(".bar i").first
    expect(bar).to_be_attached()
    first = bar.evaluate("one => one.getBoundingClientRect().width")
    until(lambda: bar.evaluate("one => one.getBoundingClientRect().width") < first, "the bar to shrink")
    lease.release()


def test_a_lock_that_is_called_like_a_script_is_text(page: Page, locks: holdfast.Locks) -> None:
    lease = locks.lock(STRANGE).acquire()
    expect(page.locator("a.name")).to_have_text(STRANGE)
    page.click("a.name")
    expect(page.locator("h2").first).to_have_text(STRANGE)
    page.keyboard.press("h")
    expect(page.locator("tbody")).to_contain_text(STRANGE)
    page.keyboard.press("g")
    expect(page.locator("h2").first).to_have_text("Who waits for whom")
    assert page.locator("main script, main img").count() == 0
    lease.release()


def test_the_keyboard_goes_everywhere(page: Page, locks: holdfast.Locks) -> None:
    leases = [locks.lock(name).acquire() for name in ("a", "b")]
    expect(page.locator("#locks tbody tr")).to_have_count(2)
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("h2").first).to_have_text("b")
    page.keyboard.press("Escape")
    expect(page.locator("#locks")).to_be_visible()
    page.keyboard.press("s")
    expect(page.locator("h2").first).to_have_text("Stores")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()
    for lease in leases:
        lease.release()


def test_an_eviction_wants_the_name_typed(page: Page, locks: holdfast.Locks) -> None:
    lease = locks.lock("mine").acquire()
    page.click("a.name")
    page.click("text=Put out …")
    go = page.locator("#evict-go")
    expect(page.locator("#evict-what")).to_contain_text(f"with token {lease.token}")
    expect(go).to_be_disabled()
    page.fill("#evict-typed", "min")
    expect(go).to_be_disabled()
    page.fill("#evict-typed", "mine")
    go.click()
    expect(page.locator("#main")).to_contain_text("It is free")
    expect(page.locator("#main svg .out")).to_have_count(1)
    eviction = locks.inspect("mine").eviction
    assert eviction is not None
    assert eviction.evicted_token == lease.token


def test_a_page_that_only_looks_has_no_button_to_evict(browser: Browser, url: str, locks: holdfast.Locks) -> None:
    with locks.lock("mine"), Served(url) as served:
        page = browser.new_page()
        page.goto(served.url)
        page.click("a.name")
        expect(page.locator("#main")).to_contain_text("Inside")
        assert page.locator("text=Put out …").count() == 0
        page.close()


def test_a_deadlock_is_named_and_drawn_and_comes_first(page: Page, locks: holdfast.Locks, stuck: None) -> None:
    with locks.lock("a quiet one"):
        expect(page.locator(".badge.deadlock")).to_have_count(2)
        assert rows(page) == ["alice", "bob", "a quiet one"]
        page.keyboard.press("g")
        expect(page.locator("svg .edge.stuck")).to_have_count(2)
        expect(page.locator("#main")).to_contain_text("None of them can go on")


def test_it_comes_back_when_the_server_does(page: Page, served: Served, locks: holdfast.Locks) -> None:
    expect(page.locator("#status")).to_have_text("live")
    served.stop()
    expect(page.locator("#status")).to_contain_text("not connected", timeout=20_000)
    lease = locks.lock("meanwhile").acquire()
    served._start()
    expect(page.locator("#locks")).to_contain_text("meanwhile", timeout=20_000)
    expect(page.locator("#status")).to_have_text("live")
    lease.release()


def test_a_lock_of_a_store_that_does_not_answer_is_not_called_free(browser: Browser) -> None:
    with servers.start("redis") as redis:
        redis.kill()
        with Served(redis.url) as served, watched(browser, served.url) as page:
            expect(page.locator("#troubles")).to_contain_text("cannot connect")
            expect(page.locator("#main")).to_contain_text("Not known: the store does not answer")
            page.keyboard.press("g")
            expect(page.locator("#main")).to_contain_text("Not known: the store does not answer")
            page.goto(f"{served.url}/#/lock?store=redis&name=mine")
            expect(page.locator("#main")).to_contain_text("Not known: the store does not answer")
            redis.restart()
            expect(page.locator("#main")).to_contain_text("It is free")
            page.keyboard.press("g")
            expect(page.locator("#main")).to_contain_text("Nobody waits")
            page.keyboard.press("l")
            expect(page.locator("#main")).to_contain_text("No locks are in use")
            page.goto(f"{served.url}/#/lock?store=nowhere&name=mine")
            expect(page.locator("#main")).to_contain_text("There is no such store")


def test_one_logs_in_with_the_token(browser: Browser, url: str, locks: holdfast.Locks) -> None:
    with Served(url, token="a token that is long enough") as served:
        page = browser.new_page()
        page.goto(served.url)
        expect(page.locator("[role=alert]")).to_be_hidden()
        page.fill("#token", "another token, as long as it")
        page.click("text=Log in")
        expect(page.locator("[role=alert]")).to_contain_text("not the token")
        accessible(page, "")
        page.fill("#token", "a token that is long enough")
        page.click("text=Log in")
        expect(page.locator("#status")).to_have_text("live")
        assert page.evaluate("document.cookie") == ""
        served.again()  # and one is logged in still
        with locks.lock("afterwards"):
            expect(page.locator("#locks")).to_contain_text("afterwards")
        page.close()


def test_the_page_is_accessible_in_light_and_dark_and_fits_a_phone(
    browser: Browser, served: Served, locks: holdfast.Locks, stuck: None
) -> None:
    leases = [locks.lock(f"invoice:{number}").acquire() for number in range(6)]
    leases.append(locks.semaphore("gpu", 4).acquire(units=2))
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for scheme in schemes:
        page = browser.new_page(viewport={"width": 1280, "height": 560}, color_scheme=scheme)
        page.goto(served.url)
        expect(page.locator(".badge.deadlock")).to_have_count(2)
        grounds = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (grounds == "rgb(20, 23, 26)") == (scheme == "dark")
        accessible(page, f"dashboard-{scheme}")
        for key, ready in (("g", "svg .edge"), ("s", "dl.traits"), ("h", "tbody tr"))[: 3 if scheme == "light" else 0]:
            page.keyboard.press(key)
            expect(page.locator(ready).first).to_be_visible()
            accessible(page, "dashboard-graph" if key == "g" else "")
        page.goto(f"{served.url}/#/lock?store=sqlite&name=alice")
        expect(page.locator("svg .held").first).to_be_visible()
        accessible(page, "")
        page.set_viewport_size({"width": 360, "height": 700})
        page.reload()
        drawn = page.locator("#main .figure").first
        expect(drawn).to_be_visible()  # not made smaller until nobody can read it, nor wider than the page
        assert drawn.evaluate("one => one.scrollWidth - one.clientWidth") <= 0
        assert drawn.evaluate("one => one.querySelector('svg').getScreenCTM().a") == pytest.approx(1)
        page.keyboard.press("s")
        expect(page.locator("dl.traits")).to_be_visible()
        page.locator("h3").first.evaluate("one => { one.textContent = 'sqlite:///' + 'a-long-way/'.repeat(30) }")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.keyboard.press("l")
        expect(page.locator("#locks tbody tr").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        if scheme == "dark":
            accessible(page, "dashboard-phone")
        page.close()
    for lease in leases:
        lease.release()


def test_of_many_locks_two_hundred_are_drawn_and_the_rest_on_demand(page: Page, locks: holdfast.Locks) -> None:
    many = 205
    leases = [locks.lock(f"n:{number:04}").acquire() for number in range(many)]
    expect(page.locator(".many")).to_contain_text(f"{many} locks")
    assert page.locator("#locks tbody tr").count() == 200
    page.click("text=Show more")
    expect(page.locator("#locks tbody tr")).to_have_count(many)
    page.fill("#filter", "n:0204")
    expect(page.locator("#locks tbody tr")).to_have_count(1)
    for lease in leases:
        lease.release()


MANY, EVENTS = 2000, 200


def test_with_two_thousand_names_and_two_hundred_events_a_second_no_frame_takes_long(browser: Browser) -> None:
    """In time of the processor, by the browser's own tracing: how long a frame takes by the clock, others decide here."""
    with (
        holdfast.connect("memory://much", label="worker") as locks,
        Served("memory://much", interval=1.0) as served,
        churning(locks, MANY, EVENTS) as happened,
    ):
        page = browser.new_page(viewport={"width": 1280, "height": 760})
        page.goto(served.url)
        expect(page.locator(".many")).to_contain_text(f"{MANY} locks")
        browser.start_tracing(page=page, categories=["toplevel", "devtools.timeline"])
        enough = happened() + 4 * EVENTS
        until(lambda: happened() >= enough, "four seconds of events")
        trace = json.loads(browser.stop_tracing())["traceEvents"]
        page.close()
    mains = {(one["pid"], one["tid"]) for one in trace if one.get("args", {}).get("name") == "CrRendererMain"}
    tasks = [
        one["tdur"] / 1000
        for one in trace
        if "RunTask" in one["name"] and (one["pid"], one["tid"]) in mains and "tdur" in one
    ]
    assert len(tasks) > 50
    assert max(tasks) < 100, f"the longest took {max(tasks):.0f} ms"
