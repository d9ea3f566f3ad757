"""The page in a real Chromium while much happens, while nothing is heard, and for whoever has no mouse."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import httpx
import pytest

import holdfast
from holdfast.dashboard import app as dashboard_app
from holdfast.dashboard.looking import Looking
from holdfast.testing.proxy import Proxy

from ..browsing import Browser, Page, browser, expect, watched
from .serving import Served, churning, until

__all__ = ["browser"]
pytestmark = pytest.mark.server  # of its kind: a browser is started, and once is enough
NAME = "memory://lively"


@pytest.fixture
def busy() -> Iterator[holdfast.Locks]:
    """Others, of which some change in every look."""
    with holdfast.connect(NAME, label="worker") as locks, churning(locks, 50, 200):
        yield locks


def redraws(page: Page, many: int) -> None:
    """Until the page was told so often of what has changed."""
    page.evaluate(
        """many => new Promise((done) => {
        const source = new EventSource("api/events");
        source.addEventListener("some", () => { many -= 1; if (!many) { source.close(); setTimeout(done, 600); } });
    })""",
        many,
    )


def test_what_has_the_focus_or_is_pressed_stays_while_other_locks_change(
    browser: Browser, busy: holdfast.Locks
) -> None:
    lease = busy.lock("mine", ttl=600).acquire()
    with (
        Served(NAME, allow_evict=True) as served,
        watched(browser, f"{served.url}/#/lock?store=memory&name=mine") as page,
    ):
        out = page.locator("text=Put out …")
        out.focus()
        box = out.bounding_box()
        assert box is not None
        redraws(page, 5)
        expect(out).to_be_focused()
        page.mouse.move(box["x"] + 5, box["y"] + 5)
        page.mouse.down()
        lease.release()  # what is pressed is drawn anew, and would be another by now
        lease = busy.lock("mine", ttl=600).acquire()
        page.wait_for_timeout(800)
        page.mouse.up()
        expect(page.locator("#evict")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.locator("#evict")).to_be_hidden()
        expect(page.locator("#main:focus, #main :focus")).to_have_count(1)  # and not the whole page
    lease.release()


def test_a_renewal_does_not_take_the_focus_away(browser: Browser, url: str, locks: holdfast.Locks) -> None:
    lease = locks.lock("mine", ttl=600).acquire()
    with (
        Served(url, allow_evict=True) as served,
        watched(browser, f"{served.url}/#/lock?store=sqlite&name=mine") as page,
    ):
        out = page.locator("text=Put out …")
        out.focus()
        out.evaluate("one => { one.title = 'as it was' }")
        with holdfast.connect(url, label="next") as other:
            end = threading.Event()
            waits = threading.Thread(target=lambda: _waits(other, end))
            waits.start()
            expect(page.locator("#main")).to_contain_text("In line: 1")
            end.set()
            waits.join()
        assert out.get_attribute("title") is None  # it is another
        expect(out).to_be_focused()
    lease.release()


def _waits(locks: holdfast.Locks, end: threading.Event) -> None:
    with pytest.raises(holdfast.HoldfastError):
        locks.lock("mine").acquire(cancel=end)


def test_the_history_grows_without_being_made_anew_and_can_be_held_still(
    browser: Browser, url: str, locks: holdfast.Locks
) -> None:
    locks.lock("first").acquire().release()
    with Served(url) as served, watched(browser, served.url) as page, locks.lock("first"):
        page.keyboard.press("h")
        row = page.locator("tbody a").last
        row.focus()
        with locks.lock("second"):
            expect(page.locator("tbody")).to_contain_text("second")
            expect(row).to_be_focused()
            page.click("text=Hold still")
            with locks.lock("third"):
                until(lambda: served.app.history.find("third"), "the third to be seen")
                page.wait_for_timeout(700)  # it would be there by now
                assert "third" not in page.locator("tbody").inner_text()
                page.fill("#filter", "third")  # a question is answered all the same
                expect(page.locator("tbody")).to_contain_text("third")


def test_a_network_that_is_gone_without_a_word_is_noticed(browser: Browser, url: str) -> None:
    with Served(url) as served, Proxy(("127.0.0.1", served.port)) as proxy:
        page = browser.new_page()
        page.clock.install()
        page.goto(f"http://127.0.0.1:{proxy.port}/#/lock?store=sqlite&name=mine")
        page.clock.run_for(2000)
        expect(page.locator("#status")).to_have_text("live")
        expect(page.locator("#main")).to_contain_text("It is free")
        proxy.to_client.hold()
        page.clock.run_for(30_000)
        expect(page.locator("#status")).to_contain_text("not connected")
        page.clock.run_for(1000)
        expect(page.locator("#main")).to_contain_text("Not known: the dashboard does not answer")
        proxy.flow()
        page.clock.run_for(1000)
        expect(page.locator("#status")).to_have_text("live")
        page.clock.run_for(1000)
        expect(page.locator("#main")).to_contain_text("It is free")
        page.close()


def test_a_lock_is_not_called_free_by_a_look_of_long_ago(
    browser: Browser, url: str, locks: holdfast.Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a look takes minutes: thousands of names, far away."""
    monkeypatch.setattr(dashboard_app, "_BEAT", 0.1)
    lease = locks.lock("mine", ttl=1, renew=False).acquire()
    with Served(url) as served, watched(browser, served.url) as page:
        expect(page.locator("#locks")).to_contain_text("mine")
        begun, end, look = threading.Event(), threading.Event(), Looking._look

        def slow(self: Looking) -> None:
            begun.set()
            assert end.wait(60)
            look(self)

        monkeypatch.setattr(Looking, "_look", slow)
        assert begun.wait(20)
        served.app.board._looked["sqlite"] = 1.0
        expect(page.locator("#troubles")).to_contain_text("was last looked at more than an hour ago")
        expect(page.locator("#locks")).to_contain_text("not looked at since")  # and not "run out"
        page.goto(f"{served.url}/#/lock?store=sqlite&name=another")
        expect(page.locator("#main")).to_contain_text("Not known: the store was last looked at more than an hour ago")
        end.set()
        expect(page.locator("#main")).to_contain_text("It is free")
        expect(page.locator("#troubles")).to_be_empty()
    lease.release()


def test_one_can_log_out(browser: Browser, url: str) -> None:
    with Served(url, token="a token that is long enough") as served:
        page = browser.new_page()
        page.goto(served.url)
        page.fill("#token", "a token that is long enough")
        page.click("text=Log in")
        page.click("text=Log out")
        expect(page.locator("#token")).to_be_visible()
        page.goto(served.url)
        expect(page.locator("#token")).to_be_visible()
        page.close()
    with Served(url) as served, watched(browser, served.url) as page:
        expect(page.locator("#status")).to_have_text("live")
        expect(page.locator("#out")).to_be_hidden()


def test_a_name_that_cannot_be_typed_is_typed_as_it_is_shown(browser: Browser, url: str, locks: holdfast.Locks) -> None:
    lease = locks.lock("two\nlines").acquire()
    with Served(url, allow_evict=True) as served, watched(browser, served.url) as page:
        page.click("a.name")
        page.click("text=Put out …")
        page.fill("#evict-typed", r"two\u{a}lines")
        page.click("#evict-go")
        expect(page.locator("#done")).to_contain_text(f"outranks {lease.token}")
        expect(page.locator("#evict")).to_be_hidden()


def test_on_a_phone_too_one_sorts(browser: Browser, url: str, locks: holdfast.Locks) -> None:
    with Served(url) as served, locks.lock("a"), locks.lock("b"):
        page = browser.new_page(viewport={"width": 360, "height": 700})
        page.goto(served.url)
        names = page.locator("#locks a.name")
        expect(names).to_have_text(["a", "b"])
        page.click("th >> text=Lock")  # it is sorted by that
        expect(names).to_have_text(["b", "a"])
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.close()


def test_a_long_line_does_not_stop_the_graph(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.claim import Holding, Snapshot, Waiting

    line = tuple(Waiting(f"w{number}", 1, 1.0, 9.0) for number in range(1000))
    with Served(url) as served:
        httpx.get(served.url)
        looking = served.app._looking["sqlite"]
        monkeypatch.setattr(looking, "_seen", {"x": Snapshot("x", 1, (Holding("a", 1, 1, 1.0, 9.0),), line)})
        monkeypatch.setattr(Looking, "_look", lambda self: None)
        [told] = httpx.get(f"{served.url}/api/graph", timeout=30).json()
        assert (len(told["edges"]), told["waits"], told["deadlocks"]) == (60, 1000, [])
