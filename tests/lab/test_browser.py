"""The laboratory in a real Chromium, over the real simulator."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
import uvicorn

from holdfast.lab.app import Lab
from holdfast.testing.ports import LOOPBACK, shared_socket

from ..browsing import Browser, Page, accessible, browser, expect, watched
from ..dashboard.serving import PATIENCE, until
from .records import keep_one

__all__ = ["browser"]
pytestmark = pytest.mark.server  # of its kind: a browser is started, and once is enough


@contextmanager
def serving(lab: Lab) -> Iterator[str]:
    socket = shared_socket()
    socket.bind((LOOPBACK, 0))
    server = uvicorn.Server(uvicorn.Config(lab, log_level="critical", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, args=([socket],), daemon=True)
    thread.start()
    until(lambda: server.started, "the laboratory to start")
    yield f"http://{LOOPBACK}:{socket.getsockname()[1]}/"
    server.should_exit = True
    thread.join(PATIENCE)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(Lab()) as where:
        yield where


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    with watched(browser, url) as one:
        expect(one.locator("#status")).to_contain_text("Seed 1")
        yield one


def moment(page: Page) -> float:
    return float(page.locator("#now").inner_text().split()[0])


def test_it_plays_to_the_end_and_money_is_lost_and_one_click_would_have_helped(page: Page) -> None:
    page.click("#play")
    until(lambda: moment(page) > 0.2, "time to pass")
    page.keyboard.press("End")
    expect(page.locator("#now")).to_have_text("6.000 s")
    expect(page.locator("#verdict")).to_have_text("10 was acknowledged, and is gone.")
    expect(page.locator("#lanes svg").first.locator(".holds")).to_have_count(1)
    page.click("text=What would have helped?")
    expect(page.locator("#verdict")).to_have_text("Nothing that was acknowledged is lost.")
    expect(page.locator("#why")).to_contain_text("The token can")
    expect(page.locator("#story .refused")).to_have_count(1)
    page.click("text=As it was")
    expect(page.locator("#verdict")).to_contain_text("is gone")


def test_a_step_back_runs_the_same_seed_again(page: Page) -> None:
    page.keyboard.press("End")
    with page.expect_response(re.compile("api/run.*to=")) as answer:
        page.keyboard.press("ArrowLeft")
    assert answer.value.ok
    expect(page.locator("#status")).to_contain_text("Run again from seed 1")
    expect(page.locator("#status")).to_contain_text("the same")
    expect(page.locator("#story li").first).to_contain_text("a writes")
    before = moment(page)
    page.click("#back")
    until(lambda: moment(page) < before, "the step back")
    page.click("#forward")
    until(lambda: moment(page) == before, "the step forward")


def test_time_is_dragged_and_the_past_only_is_shown(page: Page) -> None:
    page.locator("#time").fill("2.5")
    expect(page.locator("#now")).to_have_text("2.500 s")
    expect(page.locator("#story")).to_contain_text("b has the lock")
    expect(page.locator("#story")).not_to_contain_text("a writes")
    expect(page.locator("#lanes svg .both").first).to_be_attached()
    page.locator("#time").fill("0.5")
    expect(page.locator("#lanes svg .both")).to_have_count(0)


def test_a_click_pauses_a_process_and_the_run_is_in_the_address(page: Page, browser: Browser) -> None:
    page.locator("#strikes button").click()  # without the pause of the scenario, nothing is lost
    expect(page.locator("#strikes li")).to_have_count(0)
    expect(page.locator("#verdict")).to_contain_text("Nothing")
    page.locator("#time").fill("0.7")
    page.get_by_label("Pause a for 2 s now").click()
    expect(page.locator("#strikes li")).to_have_text(re.compile(r"0.70 s: a is paused for 2 s"))
    expect(page.locator("#verdict")).to_contain_text("is gone")
    page.get_by_label("Cut b off from the store for 2 s now").click()
    expect(page.locator("#strikes li")).to_have_count(2)
    assert "do=pause:a:0.700:2,cut:b-store:0.700:2" in page.url
    digest = page.locator("#status").inner_text()
    with watched(browser, page.url) as other:
        expect(other.locator("#status")).to_have_text(digest)
        expect(other.locator("#strikes li")).to_have_count(2)
        expect(other.locator("#now")).to_have_text("0.700 s")


def test_time_is_dragged_with_the_mouse(page: Page) -> None:
    box = page.locator("#time").bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] / 2, middle)
    page.mouse.down()
    until(lambda: 2 < moment(page) < 4, "the middle of six seconds")
    page.mouse.move(box["x"] + box["width"] * 0.9, middle, steps=5)
    page.mouse.up()
    until(lambda: moment(page) > 4.5, "what was dragged to")
    page.mouse.move(box["x"], middle)
    assert moment(page) > 4.5


@pytest.mark.parametrize(("scenario", "store"), [("pause", "redis"), ("failover", "redis"), ("redlock", "redlock")])
def test_every_strike_that_is_a_click_is_in_the_address_and_so_is_the_seed(
    scenario: str, store: str, browser: Browser, url: str
) -> None:
    with watched(browser, f"{url}#scenario={scenario}&store={store}&do=&at=0.5") as page:
        expect(page.locator("#status")).to_contain_text("Seed 1")
        expect(page.locator("#strikes li")).to_have_count(0)
        page.fill("#seed", "7")
        page.keyboard.press("Tab")
        expect(page.locator("#status")).to_contain_text("Seed 7")
        buttons = page.locator("#lanes button").evaluate_all("all => all.map((one) => one.ariaLabel)")
        assert len(buttons) >= 5
        for number, label in enumerate(buttons, 1):
            page.get_by_label(label, exact=True).click()
            expect(page.locator("#strikes li")).to_have_count(number)
        asked = page.url
        assert "seed=7" in asked
        assert asked.partition("do=")[2].partition("&")[0].count(",") == len(buttons) - 1
        shown = page.locator("#status").inner_text()
    with watched(browser, asked) as shared:
        expect(shared.locator("#status")).to_have_text(shown)
        expect(shared.locator("#strikes li")).to_have_count(len(buttons))


def test_every_scenario_and_store_can_be_chosen_and_runs(page: Page) -> None:
    for scenario in page.locator("#scenario option").evaluate_all("all => all.map((one) => one.value)"):
        page.select_option("#scenario", scenario)
        expect(page.locator(f"main[data-run*='scenario={scenario}&']")).to_be_attached()
        for store in page.locator("#store option").evaluate_all("all => all.map((one) => one.value)"):
            page.select_option("#store", store)
            expect(page.locator(f"main[data-run*='scenario={scenario}&store={store}&']")).to_be_attached()
            page.click("#last")
            expect(page.locator("#trouble")).to_be_empty()
            expect(page.locator("#lanes svg .holds").first).to_be_attached()


def test_a_store_on_one_machine_has_no_link_to_cut(page: Page) -> None:
    page.select_option("#store", "sqlite")
    expect(page.get_by_label("Cut a off")).to_have_count(0)
    expect(page.get_by_label("Kill a now")).to_be_visible()


def test_an_address_that_makes_no_sense_is_told_and_is_text(browser: Browser, url: str) -> None:
    with watched(browser, f"{url}#scenario=pause&do=pause:<script>alert(1)</script>:1:1") as page:
        expect(page.locator("#trouble")).to_contain_text("cannot be done here")
        assert page.locator("main script").count() == 0
        expect(page.locator("#helps")).to_be_disabled()
        page.select_option("#scenario", "clock")  # and one is not stuck there
        expect(page.locator("#trouble")).to_be_empty()
        expect(page.locator("#status")).to_contain_text("Seed 1")


@pytest.mark.parametrize("absurd", ["__proto__", "constructor", "", "%00", "%", "💥" * 500])
def test_a_scenario_that_there_is_not_is_the_first_one(absurd: str, browser: Browser, url: str) -> None:
    with watched(browser, f"{url}#scenario={absurd}&at=1e999&at=nonsense&nobody=knows") as page:
        expect(page.locator("#status")).to_contain_text("Seed 1")
        expect(page.locator("#now")).to_have_text("0.000 s")
        expect(page.locator("#trouble")).to_be_empty()


def test_another_site_cannot_make_it_work(url: str) -> None:
    import httpx

    for host in ("evil.example", "evil.example:80", ""):
        assert httpx.get(f"{url}api/run?scenario=pause", headers={"host": host}).status_code in (400, 421)
    answer = httpx.get(f"{url}api/run?scenario=pause&to=1")
    assert answer.status_code == 200
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert httpx.get(f"{url}static/..%2Fapp.py").status_code == 404
    assert httpx.get(f"{url}api/run?scenario=pause&seed=x").json() == {
        "error": "a seed is a whole number of at most 15 digits"
    }


def test_it_is_accessible_in_light_and_dark_and_fits_a_phone(browser: Browser, url: str) -> None:
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for scheme in schemes:
        settings: dict[str, Any] = {"color_scheme": scheme, "viewport": {"width": 1180, "height": 720}}
        with watched(browser, f"{url}#scenario=fence&at=2.9", **settings) as page:
            expect(page.locator("#story li").first).to_be_visible()
            grounds = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (grounds == "rgb(20, 23, 26)") == (scheme == "dark")
            accessible(page, "lab-light" if scheme == "light" else "")
            page.set_viewport_size({"width": 360, "height": 760})
            assert page.evaluate("document.documentElement.scrollWidth") <= 360
            accessible(page, "")


def test_a_record_of_verify_is_played_and_cannot_be_struck(browser: Browser, tmp_path: Path) -> None:
    keep_one(tmp_path / "history")
    with serving(Lab(tmp_path / "history")) as url, watched(browser, url) as page:
        expect(page.locator("#what")).to_contain_text("A record of holdfast verify")
        page.click("#last")
        expect(page.locator("#verdict")).to_contain_text("is gone")
        expect(page.locator("#choices")).to_be_hidden()
        assert page.locator(".lane button").count() == 0
        page.click("#back")
        expect(page.locator("#story li").first).to_contain_text("a learns that the lock is lost")
