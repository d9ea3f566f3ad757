"""What the doctor says, by check."""

from __future__ import annotations

from importlib import import_module

from holdfast.connecting import BUILT_IN
from holdfast.doctor import Finding, examine
from holdfast.doctor.findings import findings


def whole(url: str) -> dict[str, list[Finding]]:
    """A whole examination."""
    told: dict[str, list[Finding]] = {}
    for one in examine(url):
        told.setdefault(one.check, []).append(one)
    return told


def one(url: str, check: str) -> list[Finding]:
    """One check of the store's own table."""
    store = BUILT_IN[url.partition("://")[0]].rpartition(".")[2]
    ward = import_module(f"holdfast.doctor.{store}").admit(url)
    try:
        return list(findings(check, dict(ward.checks())[check]))
    finally:
        ward.close()


def levels(found: list[Finding]) -> list[str]:
    return [one.level for one in found]


def said(found: list[Finding], level: str) -> str:
    """All that was said at that level, with the advice; never nothing."""
    text = "\n".join(f"{one.text} -> {one.advice}" for one in found if one.level == level)
    assert text, f"nothing is a {level} in {found}"
    return text


def all_looked_at(told: dict[str, list[Finding]]) -> None:
    unseen = [
        one for some in told.values() for one in some if "could not look" in one.text or "nothing to say" in one.text
    ]
    assert unseen == []
