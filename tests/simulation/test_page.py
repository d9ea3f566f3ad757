"""The story of a seed as a page: what is on it, that nothing in it is believed, and how it looks in a browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.cli import main
from holdfast.testing.history import ACQUIRE, CHECK, CLAIM, DONE, GRANTED, STALE, WRITE, History, Operation
from holdfast.testing.simulation import Report, searching
from holdfast.testing.simulation.page import page

from ..browsing import Browser, accessible, browser, expect, watched

__all__ = ["browser"]
WIDTHS = {"desktop": (1280, 800), "phone": (390, 800)}
STRANGE = '<script>alert(1)</script>&"'


def two_at_once(name: str = "mutex") -> Report:
    """Both believe that they hold it; the storage refuses the first; its server was paused."""
    history = History()
    history.note(0.3, "server", "paused", detail="for 0.500 s")
    for process, since, token in (("p1", 0.1, 7), ("p2", 1.0, 8)):
        for kind in (ACQUIRE, CLAIM):
            one = history.begin(Operation(process, kind, name, since, holder=process, ttl=1.0))
            one.end(since + 0.1, GRANTED, token)
        for at in (since + 0.2, since + 1.2):
            history.begin(Operation(process, CHECK, name, at, holder=process, token=token)).end(at, DONE)
    write = history.begin(Operation("p1", WRITE, name, 1.4, token=7, value=(("u1", 7),), detail="older than 8"))
    write.end(1.45, STALE)
    history.begin(Operation("p2", WRITE, name, 1.5, token=8, value=(("u2", 8),)))
    history.note(2.0, "world", "healed")
    return Report(5, [], history, 1, 10, 3.0)


def drawn(report: Report) -> str:
    return page(report, searching.story_of("redis", report), "holdfast simulate redis --seed 5")


def test_overlaps_and_refusals_are_marked_and_every_mark_leads_to_its_line() -> None:
    told = drawn(two_at_once())
    assert told.count('class="overlap"') == 2 + 1, "in two lanes, and in the legend"
    assert told.count('<circle class="refused"') == 1
    assert told.count('<rect class="lost"') == 1, "the write that was not answered"
    assert told.count('<rect class="band"') == 1
    assert told.count('<line class="healed"') == 1
    lines = set(re.findall(r'<tr id="(e\d+)"', told))
    assert set(re.findall(r'<a href="#(e\d+)"', told)) == lines
    lanes = re.findall(r'<text x="6"[^>]*>([^<]*)</text>', told)
    assert lanes == ["p1", "p2", "server", "storage"]


def test_moments_are_drawn_in_their_order() -> None:
    places = [float(x) for x in re.findall(r'<text class="at" x="([\d.]+)"', drawn(two_at_once()))]
    assert places == sorted(places)
    assert len(set(places)) == len(places)


def test_names_are_text() -> None:
    told = drawn(two_at_once(STRANGE))
    assert "<script" not in told
    assert "&lt;script&gt;" in told


def test_the_command_draws_one_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "story.html"
    assert main(["simulate", "etcd", "--seed", "4", "--html", str(path)]) == 0
    told = path.read_text(encoding="utf-8")
    assert "<h1>Seed 4 of etcd" in told
    assert "holdfast simulate etcd --seed 4" in told
    assert str(path) in capsys.readouterr().err


@pytest.mark.server
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_it_is_readable_in_a_browser(browser: Browser, tmp_path: Path, width: str, scheme: str) -> None:
    path = tmp_path / "story.html"
    path.write_text(drawn(two_at_once(STRANGE)), encoding="utf-8")
    size = dict(zip(("width", "height"), WIDTHS[width], strict=True))
    with watched(browser, path.as_uri(), viewport=size, color_scheme=scheme) as shown:
        expect(shown.locator("h1")).to_contain_text("Seed 5 of redis: All promises were kept")
        assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth"), "only the lanes scroll"
        assert STRANGE in (shown.locator("rect.overlap title").first.text_content() or "")
        shown.locator("circle.refused").click()
        expect(shown.locator("tr:target")).to_contain_text("refused, older than 8")
        accessible(shown, "")
