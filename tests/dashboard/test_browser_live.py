"""The page in a real Chromium while much happens, while nothing is heard, and for whoever has no mouse."""

from __future__ import annotations

import threading
import time
import unicodedata
from collections.abc import Iterator

import httpx
import pytest

import holdfast
from holdfast.dashboard import app as dashboard_app
from holdfast.dashboard.looking import Looking
from holdfast.testing.proxy import Proxy

from ..browsing import Browser, Page, Route, browser, expect, watched
from .serving import Served, churning, until

__all__ = ["browser"]
pytestmark = pytest.mark.server  # of its kind: a browser is started, and once is enough
NAME = "memory://lively"
TOKEN = "a token that is long enough"


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
    lease = locks.lock("mine", ttl=60, renew=False).acquire()
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
        expect(page.locator("#locks")).to_contain_text("not looked at since")
        page.goto(f"{served.url}/#/lock?store=sqlite&name=another")
        expect(page.locator("#main")).to_contain_text("Not known: the store was last looked at more than an hour ago")
        end.set()
        expect(page.locator("#main")).to_contain_text("It is free")
        expect(page.locator("#troubles")).to_be_empty()
    lease.release()


def test_a_ttl_is_run_out_only_if_somebody_has_looked_since(browser: Browser, url: str) -> None:
    with Served(url) as served, watched(browser, served.url) as page:
        told = page.evaluate("""async () => {
            const state = await import("./static/state.js"), { ttlBar } = await import("./static/pieces.js"), at = state.now();
            const all = () => [at - 1, at - 3, at + 50].map((ends) => ttlBar("x", { ends, ttl: 5 }).textContent);
            state.page.looked = { x: at - 2 };
            const seen = all();
            state.stores.set("x", { error: "no answer" });
            return [...seen, ...all()];
        }""")
        assert [one.partition(" s")[0] for one in told] == [
            *("not looked at", "run out", "50"),
            *("not looked at", "run out", "not looked at"),  # it may have been renewed since
        ]


def logged_in(browser: Browser, served: Served) -> Page:
    page = browser.new_page()
    page.goto(served.url)
    page.fill("#token", TOKEN)
    page.click("text=Log in")
    expect(page.locator("#status")).to_have_text("live")  # all of it is there, and nothing moves any more
    return page


def test_of_the_last_ten_minutes_nothing_older_is_shown_also_while_nothing_changes(browser: Browser, url: str) -> None:
    """A lock that nobody takes or renews is not drawn anew, and time passes all the same."""
    with Served(url) as served, watched(browser, served.url) as page:
        told = page.evaluate("""async () => {
            const { page, now } = await import("./static/state.js"), { spark } = await import("./static/pieces.js");
            page.ticks = [];
            const at = now(), drawn = spark([at - 7200, at - 601, at - 300, at - 1]);
            document.body.append(drawn);
            const shown = () => {
                const frame = drawn.getBoundingClientRect();
                const marks = [...drawn.querySelectorAll("line")].map((one) => one.getBoundingClientRect().right - frame.left);
                return [parseInt(drawn.getAttribute("aria-label")), marks.filter((right) => right > -0.5).length];
            };
            return [0, 310, 700].map((later) => { for (const call of page.ticks) call(at + later); return shown(); });
        }""")
        assert told == [[2, 2], [1, 1], [0, 0]]


def test_one_can_log_out(browser: Browser, url: str) -> None:
    with Served(url, token=TOKEN) as served:
        page = logged_in(browser, served)
        page.click("text=Log out")
        expect(page.locator("#token")).to_be_visible()
        page.goto(served.url)
        expect(page.locator("#token")).to_be_visible()
        page.close()
    with Served(url) as served, watched(browser, served.url) as page:
        expect(page.locator("#status")).to_have_text("live")
        expect(page.locator("#out")).to_be_hidden()


@pytest.mark.parametrize(
    ("name", "typed"),
    [
        ("two\nlines", r"two\u{a}lines"),
        (" a  b\u00a0c ", r"\u{20}a \u{20}b\u{a0}c\u{20}"),  # a page leaves blanks out, and no key makes the third
        ("Ame\u0301lie", "Am\u00e9lie"),
    ],
)
def test_a_name_that_cannot_be_typed_is_typed_as_it_is_shown(
    browser: Browser, url: str, locks: holdfast.Locks, name: str, typed: str
) -> None:
    lease = locks.lock(name).acquire()
    with Served(url, allow_evict=True) as served, watched(browser, served.url) as page:
        page.click("a.name")
        page.click("text=Put out …")
        assert unicodedata.normalize("NFC", page.locator("#evict-what strong").last.inner_text()) == typed
        page.fill("#evict-typed", typed)
        page.click("#evict-go")
        expect(page.locator("#done")).to_contain_text(f"outranks {lease.token}")
        expect(page.locator("#evict")).to_be_hidden()


def test_who_puts_out_and_is_not_answered_is_told_that_it_may_have_happened(
    browser: Browser, url: str, locks: holdfast.Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = locks.lock("mine").acquire()
    proxied: list[str] = []  # somebody in between answers in our place, in words of their own

    def unanswered(*_: object, **__: object) -> int:
        raise holdfast.Unavailable("the store did not answer within 3 s")

    with Served(url, allow_evict=True) as served, watched(browser, served.url) as page:
        page.click("a.name")
        page.click("text=Put out …")
        page.route("**/api/evict", lambda route: route.abort())
        for why in ("No answer", "No answer", "the store did not answer within 3 s"):
            page.fill("#evict-typed", "")
            page.fill("#evict-typed", "mine")
            page.click("#evict-go")
            expect(page.locator("#evict-said")).to_contain_text(
                f"{why}. It is not known whether the holder was put out"
            )
            expect(page.locator("#evict-typed")).to_be_focused()
            page.unroute("**/api/evict")
            if not proxied:
                proxied.append("once")
                page.route("**/api/evict", lambda route: route.fulfill(status=504, body="<h1>Gateway Time-out</h1>"))
            monkeypatch.setattr(holdfast.Locks, "force_release", unanswered)
    lease.release()


def test_who_could_not_be_logged_out_is_told(browser: Browser, url: str) -> None:
    with Served(url, token=TOKEN) as served:
        page = logged_in(browser, served)
        page.route("**/api/logout", lambda route: route.abort())
        page.click("text=Log out")
        expect(page.locator("#out")).to_contain_text("Still logged in")
        page.unroute("**/api/logout")
        page.click("#out")
        expect(page.locator("#token")).to_be_visible()
        page.close()


def test_a_page_that_comes_back_listens_once(browser: Browser, url: str) -> None:
    """A proxy says 502, and is silent then: two ways to come back, and one is enough. Six are all that a browser has."""
    with Served(url) as served:
        page = browser.new_page()
        page.clock.install()
        page.goto(served.url)
        expect(page.locator("#status")).to_have_text("live")
        silent: list[Route] = []
        page.route("**/api/session", lambda route: silent.append(route))
        page.route("**/api/events", lambda route: route.fulfill(status=502))
        served.again()
        expect(page.locator("#status")).to_contain_text("not connected")
        deadline = time.monotonic() + 30
        while not silent:  # it asks whether there is a session still
            assert time.monotonic() < deadline
            page.clock.run_for(500)
            page.wait_for_timeout(50)
        page.unroute("**/api/events")
        page.clock.run_for(20_000)
        expect(page.locator("#status")).to_have_text("live")
        silent[0].fulfill(json={})
        page.wait_for_timeout(1000)
        page.evaluate("fetch('api/state')")
        assert served.app._streams == 1
        page.close()


def test_a_page_that_nobody_sees_listens_to_nothing_and_comes_back(
    browser: Browser, url: str, locks: holdfast.Locks
) -> None:
    """Else six in the background are all the connections that a browser has, and the seventh waits for ever."""
    hidden = "Object.defineProperty(document, 'hidden', { get: () => window.unseen, configurable: true });"
    turn = "is => { window.unseen = is; document.dispatchEvent(new Event('visibilitychange')); }"
    with Served(url) as served:
        context = browser.new_context()
        context.add_init_script(f"window.unseen = false; {hidden}")
        page = context.new_page()
        page.goto(served.url)
        expect(page.locator("#status")).to_have_text("live")
        page.evaluate(turn, True)
        until(lambda: not served.app._streams, "the stream to end")
        with locks.lock("meanwhile"):
            page.evaluate(turn, False)
            expect(page.locator("#locks")).to_contain_text("meanwhile")
            expect(page.locator("#status")).to_have_text("live")
            assert served.app._streams == 1
        context.add_init_script("window.unseen = true;")
        for _ in range(6):  # opened in the background
            context.new_page().goto(served.url)
        last = context.new_page()
        last.add_init_script("window.unseen = false;")
        last.goto(served.url)
        expect(last.locator("#status")).to_have_text("live")
        context.close()


def test_the_history_of_a_server_that_has_begun_anew_is_not_shown_as_that_of_the_old_one(
    browser: Browser, url: str, locks: holdfast.Locks
) -> None:
    """Their events have the same numbers."""
    with Served(url) as served:
        page = browser.new_page()
        page.goto(f"{served.url}/#/history")
        with locks.lock("before"):
            expect(page.locator("tbody")).to_contain_text("before")
        served.again()
        with locks.lock("after"):
            expect(page.locator("tbody")).to_contain_text("after")
            expect(page.locator("tbody")).not_to_contain_text("before")
        page.close()


def test_a_store_that_was_never_looked_at_is_told_of_beside_those_that_are(
    browser: Browser, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the first look takes minutes: thousands of names, far away."""
    end, look = threading.Event(), Looking._look

    def slow(self: Looking) -> None:
        assert self.store == "sqlite" or end.wait(60)
        look(self)

    monkeypatch.setattr(Looking, "_look", slow)
    with Served(url, "memory://far-away") as served:
        page = browser.new_page()
        page.clock.install()
        page.goto(served.url)
        expect(page.locator("#status")).to_have_text("live")
        expect(page.locator("#troubles")).to_be_empty()
        facts = served.app._looking["memory"]._facts
        facts["since"] -= 60
        served.app.board.store("memory", dict(facts))
        page.clock.run_for(2000)
        expect(page.locator("#troubles")).to_contain_text("memory takes long to answer")
        expect(page.locator("#troubles")).to_contain_text("for more than 30 s, and none of its locks are shown yet")
        end.set()
        page.clock.run_for(2000)
        expect(page.locator("#troubles")).to_be_empty()
        page.close()


def test_that_nobody_waits_is_not_said_while_nobody_answers(browser: Browser, url: str) -> None:
    with Served(url) as served:
        page = browser.new_page()
        page.goto(f"{served.url}/#/graph")
        expect(page.locator("#main")).to_contain_text("Nobody waits")
        served.stop()
        expect(page.locator("#main")).to_contain_text("Not known: the dashboard does not answer")
        page.close()
        served._start()


def test_what_was_asked_of_the_history_in_vain_is_asked_again(
    browser: Browser, url: str, locks: holdfast.Locks
) -> None:
    with Served(url) as served, locks.lock("first"), locks.lock("second"):
        page = browser.new_page()
        page.goto(f"{served.url}/#/history")
        expect(page.locator("tbody")).to_contain_text("second")
        page.click("text=Hold still")
        page.route("**/api/history?*", lambda route: route.abort())
        page.fill("#filter", "first")
        expect(page.locator(".many")).to_contain_text("no answer")
        page.unroute("**/api/history?*")
        expect(page.locator("tbody")).not_to_contain_text("second")
        expect(page.locator("tbody")).to_contain_text("first")
        page.close()


def test_who_has_scrolled_away_from_the_focus_is_not_drawn_back(browser: Browser, busy: holdfast.Locks) -> None:
    with Served(NAME) as served, watched(browser, served.url) as page:
        expect(page.locator("#locks a.name").nth(40)).to_be_visible()
        page.keyboard.press("j")
        page.evaluate("scrollTo(0, 900)")
        redraws(page, 60)  # of which one is of the lock that has the focus
        expect(page.locator("#locks a.name:focus")).to_have_count(1)
        assert page.evaluate("scrollY") > 500


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
    monkeypatch.setattr(Looking, "_look", lambda self: None)  # before there is one that is under way
    with Served(url) as served:
        httpx.get(served.url)
        looking = served.app._looking["sqlite"]
        monkeypatch.setattr(looking, "_seen", {"x": Snapshot("x", 1, (Holding("a", 1, 1, 1.0, 9.0),), line)})
        [told] = httpx.get(f"{served.url}/api/graph", timeout=30).json()
        assert (len(told["edges"]), told["waits"], told["deadlocks"]) == (60, 1000, [])
