"""What the scenarios say comes out, comes out: of the real engine and the real stores, for many seeds."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from holdfast.errors import Misuse
from holdfast.lab.app import Lab, asked, digest
from holdfast.lab.scenarios import FENCES, SCENARIOS
from holdfast.lab.stage import Setup, run
from holdfast.lab.stores import STORES
from holdfast.testing.history import ACQUIRE, CRASHED, DONE, GRANTED, WRITE, History, Note, Operation

from .records import keep_one

SEEDS = range(4)
HARM = ("pause", "fence", "clock", "forget", "failover", "redlock", "leader")


def runs(scenario: str, **settings: Any) -> Iterator[dict[str, Any]]:
    one = SCENARIOS[scenario]
    for store in one.stores:
        for seed in SEEDS:
            yield run(Setup(one, store, one.start._replace(**settings), seed, one.strikes))["outcome"]


@pytest.mark.parametrize("scenario", HARM)
def test_without_a_fence_something_that_was_acknowledged_is_lost(scenario: str) -> None:
    assert all(out["lost"] > 0 for out in runs(scenario, fence="none"))


@pytest.mark.parametrize("scenario", list(SCENARIOS))
@pytest.mark.parametrize("checks", [False, True])
def test_with_a_fence_on_reads_and_writes_nothing_is_lost(scenario: str, checks: bool) -> None:
    for out in runs(scenario, fence="all", checks=checks):
        assert out["lost"] == 0
        assert out["balance"] >= out["acknowledged"]


def test_on_writes_only_it_depends_on_the_moment() -> None:
    assert all(out["lost"] == 0 and out["refused"] for out in runs("pause", fence="writes"))
    assert all(out["lost"] > 0 and not out["refused"] for out in runs("fence", fence="writes"))


@pytest.mark.parametrize("scenario", ["pause", "fence", "clock", "forget"])
def test_two_believe_and_looking_first_does_not_help(scenario: str) -> None:
    assert all(out["both"] > 0 and out["lost"] > 0 for out in runs(scenario, fence="none", checks=True))


def test_a_leader_that_looks_loses_less_than_one_that_does_not() -> None:
    for careless, careful in zip(runs("leader", checks=False), runs("leader", checks=True), strict=True):
        assert careful["lost"] < careless["lost"]


@pytest.mark.parametrize("store", ["etcd", "consul"])
def test_a_store_whose_own_leader_is_cut_off_goes_on_under_another_and_nothing_is_lost(store: str) -> None:
    """What a majority is for: the harm comes from those who hold the lock."""
    for seed in SEEDS:
        setup, _ = asked({"scenario": "pause", "store": store, "seed": str(seed), "do": "depose:store:0.3:2"})
        out = run(setup)["outcome"]
        assert (out["lost"], out["balance"], out["acknowledged"]) == (0, 20, 20)
    with pytest.raises(Misuse):
        asked({"scenario": "pause", "store": "memory", "do": "depose:store:0.3:2"})


@pytest.mark.parametrize(("scenario", "setting"), [("fair", "fair"), ("herd", "bells")])
def test_waits_are_shorter_with_what_helps(scenario: str, setting: str) -> None:
    worse = [out["longest_wait"] for out in runs(scenario, **{setting: False})]
    better = [out["longest_wait"] for out in runs(scenario, **{setting: True})]
    assert sum(better) < 0.8 * sum(worse)


def test_a_herd_asks_oftener() -> None:
    for deaf, woken in zip(runs("herd", bells=False), runs("herd", bells=True), strict=True):
        assert woken["questions"] < deaf["questions"]


@pytest.mark.parametrize("scenario", list(SCENARIOS))
def test_what_would_have_helped_helps(scenario: str) -> None:
    one = SCENARIOS[scenario]
    assert one.helps != one.start
    for store in one.stores:
        outcome = run(Setup(one, store, one.helps, 1, one.strikes))["outcome"]
        assert outcome["lost"] == 0


@pytest.mark.parametrize("scenario", list(SCENARIOS))
@pytest.mark.parametrize("store", list(STORES))
def test_a_run_again_up_to_any_moment_is_the_same_up_to_there(scenario: str, store: str) -> None:
    one = SCENARIOS[scenario]
    if store not in one.stores:
        assert not one.needs <= STORES[store].can
        return
    setup = Setup(one, store, one.start, 5, one.strikes)
    whole = run(setup)["events"]
    assert len(whole) > 10
    for number in range(0, len(whole), max(1, len(whole) // 8)):
        part = run(setup, whole[number]["at"])["events"]
        assert json.dumps(part) == json.dumps(whole[: len(part)])
        assert len(part) > number


def test_a_strike_changes_what_comes_after_it_and_nothing_before() -> None:
    base, _ = asked({"scenario": "pause", "do": ""})
    struck, _ = asked({"scenario": "pause", "do": "pause:b:0.3:1,cut:a-store:0.4:1,kill:b:1.5:0"})
    calm, hit = run(base)["events"], run(struck)["events"]
    assert [one for one in hit if one["at"] < 0.3] == [one for one in calm if one["at"] < 0.3]
    assert hit != calm
    assert [one["text"] for one in hit if one["kind"] == "killed"] == ["b is gone"]


def test_another_seed_is_another_run_and_the_same_seed_is_not() -> None:
    tapes = [run(asked({"scenario": "pause", "seed": seed})[0]) for seed in ("1", "1", "2")]
    assert tapes[0] == tapes[1]
    assert digest(tapes[0]) != digest(tapes[2])


def test_a_process_that_is_killed_believes_no_more_and_the_next_has_its_turn() -> None:
    setup, _ = asked({"scenario": "pause", "do": "kill:a:0.5:0"})
    tape = run(setup)
    [mine] = [one for one in tape["spans"] if one["lane"] == "a" and one["kind"] == "holds"]
    assert mine["until"] == 0.5
    assert tape["outcome"]["balance"] == tape["outcome"]["acknowledged"] == 10


def test_what_the_store_says_ends_with_the_ttl_or_with_its_clock() -> None:
    paused = [one for one in run(asked({"scenario": "pause"})[0])["spans"] if one["kind"] == "says"]
    assert paused[0]["until"] - paused[0]["since"] == pytest.approx(2.0)
    jumped = [one for one in run(asked({"scenario": "clock"})[0])["spans"] if one["kind"] == "says"]
    assert jumped[0]["until"] <= jumped[1]["since"] < 2.0


@pytest.mark.parametrize(
    "words",
    [
        {"scenario": "nonsense"},
        {"scenario": "pause", "store": "mongodb"},
        {"scenario": "failover", "store": "memory"},
        {"scenario": "pause", "do": "failover:store:1:1"},
        {"scenario": "redlock", "do": "forget:store:1:0"},
        {"scenario": "redlock", "do": "down:node4:1:1"},
        {"scenario": "clock", "store": "sqlite"},
        {"scenario": "pause", "fence": "maybe"},
        {"scenario": "pause", "checks": "perhaps"},
        {"scenario": "pause", "seed": "-1"},
        {"scenario": "pause", "seed": "9" * 30},
        {"scenario": "pause", "seed": "9" * 5000},  # Python makes no int of so many
        {"scenario": "pause", "do": "pause"},
        {"scenario": "pause", "do": "pause:c:1:1"},
        {"scenario": "pause", "do": "pause:a:1:nan"},
        {"scenario": "pause", "do": "pause:a:-1:1"},
        {"scenario": "pause", "do": "pause:a:1:-1"},
        {"scenario": "pause", "do": "clock:store:1:99999"},
        {"scenario": "pause", "do": "forget:a:1:0"},
        {"scenario": "pause", "store": "sqlite", "do": "cut:a-store:1:1"},
        {"scenario": "pause", "do": ",".join(["pause:a:1:1"] * 41)},
        {"scenario": "pause", "to": "nan"},
    ],
)
def test_an_address_that_makes_no_sense_is_refused(words: dict[str, str]) -> None:
    with pytest.raises(Misuse):
        asked(words)


def test_another_sites_page_may_lead_here_and_no_more() -> None:
    async def status(path: str, site: str) -> int:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(Lab()), base_url="http://localhost") as client:
            return (await client.get(path, headers={"sec-fetch-site": site})).status_code

    run = "/api/run?scenario=pause&to=0"
    assert asyncio.run(status("/", "cross-site")) == 200
    assert asyncio.run(status(run, "cross-site")) == 421
    assert asyncio.run(status(run, "same-origin")) == 200


def test_a_history_of_verify_is_the_same_kind_of_tape(tmp_path: Any) -> None:
    from holdfast.lab.record import opened

    keep_one(tmp_path / "history")
    tape = opened(tmp_path / "history")
    assert tape["outcome"]["lost"] == 10
    assert tape["lanes"] == ["a", "b", "storage"]
    assert {one["kind"] for one in tape["spans"]} >= {"holds", "waits"}
    assert tape["about"] == {"store": "memory", "seed": 1, "workers": 2, "ttl": 2.0, "fenced": False}


def _planted(note: str, processes: int, final: int) -> dict[str, Any]:
    from holdfast.lab.record import recorded

    history = History()
    for number in range(2500):
        who, token = f"w{number % processes}", number + 1
        history.operations += [
            Operation(who, ACQUIRE, "x.1", number, number + 0.5, GRANTED, f"h{number}", token),
            Operation(who, WRITE, "x.1", number + 0.5, number + 0.6, DONE, "", token, value=((f"u{number}", token),)),
        ]
    whose = "w0" if note == CRASHED else "servers"
    history.notes = [Note(float(number), whose, note, detail="for 1.5 s") for number in range(20_000)]
    history.final = {"x.1": tuple((f"z{number}", number) for number in range(final))}
    return recorded(history, {})


@pytest.mark.parametrize(
    ("note", "processes", "final"), [(CRASHED, 1, 0), ("fault pause", 2500, 0), (CRASHED, 1, 20_000)]
)
def test_a_history_that_somebody_wrote_to_keep_us_busy_does_not(note: str, processes: int, final: int) -> None:
    """A file of two megabytes was minutes, or two gigabytes."""
    worked = time.process_time()
    tape = _planted(note, processes, final)
    assert time.process_time() - worked < 5
    assert len(tape["spans"]) + len(tape["events"]) < 50_000
    assert tape["outcome"]["lost"] == 25_000


# ---- mistakes in the laboratory itself, which the tests above find


def test_a_fence_that_does_not_look_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FENCES, "all", FENCES["none"])
    with pytest.raises(AssertionError):
        test_with_a_fence_on_reads_and_writes_nothing_is_lost("pause", False)


def test_a_run_that_depends_on_anything_but_its_seed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    import random

    from holdfast.testing.simulation.network import Network

    monkeypatch.setattr(Network, "_delay", lambda self: random.uniform(0.0005, 0.01))
    with pytest.raises(AssertionError):
        test_a_run_again_up_to_any_moment_is_the_same_up_to_there("pause", "memory")
