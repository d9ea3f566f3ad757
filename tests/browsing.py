"""A real Chromium, Debian's, driven by playwright: for the tests of our pages. Left out, with a word, where there is none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.servers.needs import CHROMIUM

try:
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import Browser, Page, Route, expect, sync_playwright
except ImportError as error:
    pytest.skip(f"NO BROWSER TESTS: {error}; pip install playwright axe-playwright-python", allow_module_level=True)

__all__ = ["Browser", "Page", "Route", "accessible", "browser", "expect", "watched"]
PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
expect.set_options(timeout=20_000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = CHROMIUM.find()
    assert program, "no browser here: python -m holdfast.testing.servers install chromium"
    with sync_playwright() as playwright:
        yield (started := playwright.chromium.launch(executable_path=program, args=["--no-sandbox"]))
        started.close()


@contextmanager
def watched(browser: Browser, url: str, **settings: Any) -> Iterator[Page]:
    """A page, and at its end: no error, nothing asked of anybody else."""
    one = browser.new_page(**{"viewport": {"width": 1280, "height": 760}, **settings})
    errors: list[str] = []
    asked: list[str] = []
    one.on("pageerror", lambda error: errors.append(str(error)))
    one.on("dialog", lambda dialog: errors.append(f"a dialog: {dialog.message}"))
    one.on("console", lambda said: errors.append(said.text) if "Content Security Policy" in said.text else None)
    one.on("request", lambda request: asked.append(request.url))
    one.goto(url)
    yield one
    one.close()
    assert errors == []
    origin = "/".join(url.split("/")[:3])
    assert [where for where in asked if not where.startswith((f"{origin}/", "data:"))] == []


def accessible(page: Page, picture: str) -> None:
    """By axe-core. With HOLDFAST_PICTURES=1, what it looks like goes into the documentation."""
    if picture and os.environ.get("HOLDFAST_PICTURES"):
        page.screenshot(path=PICTURES / f"{picture}.png")
    # Chromium runs it in a world of its own, which the page's policy does not reach.
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
