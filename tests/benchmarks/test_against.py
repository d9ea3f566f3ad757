"""`python -m benchmarks STORE --against REVISION`: a change that makes it slower is seen, and no change is not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from benchmarks.against import Compared

from benchmarks import against


def test_a_checkout_that_was_made_slower_is_told_from_one_that_was_not(tmp_path: Path) -> None:
    slowed = tmp_path / "src" / "holdfast"
    shutil.copytree(against.HERE / "src" / "holdfast", slowed, ignore=shutil.ignore_patterns("__pycache__"))
    rule = slowed / "rule.py"
    rule.write_text(
        rule.read_text()
        + "\n\nimport time\n\n_admit = admit\n\n\ndef admit(*a, **k):\n    time.sleep(0.0003)\n    return _admit(*a, **k)\n"
    )
    found = {one.what: one for one in against.compare("memory", tmp_path, pairs=3)}
    slow = found["one thread"]
    assert slow.high < 1, slow  # ours takes less than that one
    assert slow.verdict == "faster"


def test_what_is_slower_beyond_doubt_is_refused_and_what_is_not_passes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def of(low: float, times: float, high: float) -> Compared:
        return Compared("memory", "one thread", times, low, high, 1e-5, 1e-5)

    for one, passes, word in (
        (of(1.06, 1.10, 1.2), False, "SLOWER"),
        (of(1.02, 1.10, 1.2), True, "perhaps by more than 5 %"),
        (of(1.01, 1.02, 1.04), True, "within 5 %"),
        (of(0.95, 1.01, 1.08), True, "no difference seen"),
        (of(0.7, 0.8, 0.9), True, "faster"),
    ):
        monkeypatch.setattr(against, "compare", lambda *_, one=one: iter([one]))
        assert against.main(["memory"], str(against.HERE), tmp_path / "found.json", 1) is passes
        assert word in capsys.readouterr().out
    assert '"verdict": "faster"' in (tmp_path / "found.json").read_text()


def test_the_interval_is_of_pairs_and_not_of_their_rounds() -> None:
    steady = [[1.0 + 0.001 * turn for turn in range(8)] for _ in range(10)]
    low, high = against.interval(steady)
    assert low == high == pytest.approx(1.0035)
    # One process that happened to be slow says nothing of the code, however often it was asked.
    one_slow = [[1.0] * 8] * 9 + [[2.0] * 800]
    assert against.interval(one_slow)[1] < 1.5


def test_what_cannot_be_compared_is_said() -> None:
    with pytest.raises(SystemExit, match="compares stores: memory"):
        against.main(["fenced"], "main", None)
    with pytest.raises(SystemExit, match="neither a checkout nor a commit"):
        against.main(["memory"], "no such revision", None)
