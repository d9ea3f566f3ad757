"""Is the page of the dashboard smooth? Frames of a real Chromium, with 2,000 names and 200 events a second.

A frame is the time between two calls of requestAnimationFrame. An empty page, looked at first, says what this machine gives by
itself. Where others work too, a long frame is theirs: nice alone does not help, since playwright gives the browser a session of
its own, and Linux shares out by sessions (`echo -15 > /proc/PID/autogroup`, as root, while it runs).
"""

from __future__ import annotations

import os
import statistics
import sys

from playwright.sync_api import Page, sync_playwright
from tests.dashboard.serving import Served, churning, until

import holdfast
from holdfast.testing.servers.needs import CHROMIUM

from .measure import Verdict, report

MANY, EVENTS, SECONDS = 2000, 200, 20
BAR = 100.0
URL = "memory://much"
FOLLOW = """
() => {
  const seen = window.seen = { frames: [], tasks: [], last: performance.now() };
  const frame = (at) => { seen.frames.push(at - seen.last); seen.last = at; requestAnimationFrame(frame); };
  requestAnimationFrame((at) => { seen.last = at; requestAnimationFrame(frame); });
  const long = (list) => seen.tasks.push(...list.getEntries().map((one) => one.duration));
  new PerformanceObserver(long).observe({ entryTypes: ["longtask"] });
}
"""


def frames(page: Page, seconds: float = SECONDS) -> tuple[list[float], list[float]]:
    """Milliseconds of the frames, and of tasks longer than 50 ms."""
    page.evaluate(FOLLOW)
    page.wait_for_timeout(seconds * 1000)
    seen = page.evaluate("window.seen")
    return seen["frames"], seen["tasks"]


def main() -> bool:
    program = CHROMIUM.find()
    assert program, "no browser here: python -m holdfast.testing.servers install chromium"
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=program, args=["--no-sandbox"]) as browser,
        holdfast.connect(URL, label="worker") as locks,
        Served(URL, interval=1.0) as served,
        churning(locks, MANY, EVENTS) as happened,
    ):
        page = browser.new_page(viewport={"width": 1280, "height": 760})
        floor, _ = frames(page, SECONDS / 2)
        page.goto(served.url)
        until(lambda: f"{MANY} locks" in page.inner_text("body"), "the page to show all")
        before = happened()
        ours, tasks = frames(page)
        print(f"{(happened() - before) / SECONDS:.0f} events a second; load {os.getloadavg()[0]:.1f}")
    told = f"median {statistics.median(ours):.0f}, of {len(ours)}; of an empty page {max(floor):.0f}; {len(tasks)} tasks over 50"
    return report(
        "The dashboard's page",
        [
            Verdict("the longest frame", max(ours), BAR, "ms", detail=told),
            Verdict("99.9 % of the frames", statistics.quantiles(ours, n=1000)[-1], BAR, "ms"),
            Verdict("the longest task", max(tasks, default=0.0), BAR, "ms"),
        ],
    )


if __name__ == "__main__":
    sys.exit(not main())
