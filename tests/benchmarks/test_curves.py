"""The pictures and the model behind docs/scale.md. What they show is measured by `make bench`."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import pytest
from benchmarks.curves.drawing import picture, table
from benchmarks.curves.found import Curve
from benchmarks.scale import LOADS, simulated

CURVE = Curve("key", "Title & <tag>", "processes", "per second")
for count, rate in ((1, 5000.0), (2, 9000.0), (32, 12_345.0)):
    CURVE.add("redis", count, rate)
    CURVE.add("<script>", count, rate / 10)


def test_a_picture_has_every_point_and_is_made_of_text_only() -> None:
    drawn = ElementTree.fromstring(picture(CURVE))
    titles = [one.text for one in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert "redis, 32: 12,345" in titles
    assert "<script>, 1: 500" in titles
    assert len(titles) == 6
    assert not list(drawn.iter("{http://www.w3.org/2000/svg}script"))


def test_names_at_the_ends_of_lines_do_not_lie_upon_each_other() -> None:
    close = Curve("key", "close", "x", "y")
    for number in range(8):
        close.add(f"series {number}", 1, 100 + number)
        close.add(f"series {number}", 2, 200 + number)
    drawn = ElementTree.fromstring(picture(close))
    heights = sorted(
        float(one.get("y", 0)) for one in drawn.iter("{http://www.w3.org/2000/svg}text") if one.get("class") == "end"
    )
    assert len(heights) == 8
    assert all(after - before >= 12.9 for before, after in pairwise(heights))


def test_the_table_leaves_out_what_was_not_measured() -> None:
    some = Curve("key", "title", "leases", "bytes")
    some.add("redis", 10, 1.5)
    some.add("redis", 1000, 20_000)
    some.add("consul", 10, 3)
    assert table(some).splitlines() == [
        "| leases | 10 | 1,000 |",
        "|---|---|---|",
        "| redis | 1.5 | 20,000 |",
        "| consul | 3 |  |",
    ]


@pytest.mark.parametrize("what", LOADS)
def test_the_model_of_one_server_agrees_with_the_simulator(what: str) -> None:
    """A short form of `python -m benchmarks scale`: a tenth of the clients, and a server that is ten times as slow."""
    load = LOADS[what]
    load = load._replace(
        clients=load.clients // 10, work=load.work * 10, renewal=load.renewal * 10, leases=load.leases // 10
    )
    seen = simulated(load, seconds=max(load.pause + load.holds, 4.0))
    assert seen == pytest.approx(load.carried, rel=0.07)
