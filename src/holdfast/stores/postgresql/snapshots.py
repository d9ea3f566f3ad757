"""Rows of the table as what a person asks to see."""

from __future__ import annotations

from ...claim import Eviction, Holding, Snapshot, Waiting
from .statements import TRUE, Row, read

_SECOND = 1_000_000


def snapshot(name: str, rows: list[Row]) -> Snapshot:
    holders: list[Holding] = []
    waiters: list[Waiting] = []
    eviction: Eviction | None = None
    capacity = 0
    for row in rows:
        now, place, token, held, _, _, units, _, since, ends, its_capacity, *_ = map(read, row)
        owner, note, fair = row[4].decode(), row[5].decode(), row[7] == TRUE
        age, left = max(0, now - since) / _SECOND, (ends - now) / _SECOND
        if place == 0:
            capacity = its_capacity
            if row[12]:
                eviction = Eviction(
                    row[11].decode(),
                    read(row[12]),
                    read(row[13]),
                    row[14].decode(),
                    max(0, now - read(row[15])) / _SECOND,
                )
        if not held or left <= 0:
            continue
        if place <= 0:
            holders.append(Holding(owner, token, units, age, left, note, read(row[16]) / _SECOND))
        else:
            waiters.append(Waiting(owner, units, age, left, fair))
    holders.sort(key=lambda one: one.token)
    return Snapshot(name, capacity if holders or waiters else 0, tuple(holders), tuple(waiters), eviction)
