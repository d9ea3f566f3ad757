"""A bell between processes of one machine."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from holdfast.drivers import doorbell
from holdfast.drivers.base import finish


def test_a_bell_can_be_rung_when_what_rings_it_was_closed_by_the_end_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Releasing comes last: until then whoever waits elsewhere waited ten seconds for the lock of a process that had ended."""
    (tmp_path / "file").touch()
    closed = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    closed.close()
    monkeypatch.setattr(doorbell, "_sender", lambda: closed)
    bell = doorbell.SocketBell(str(tmp_path / "file"))
    try:
        assert bell.ring()
        assert doorbell.ring(bell.address, str(tmp_path / "file")) is True
        finish(bell.wait(20))  # which ends, or the test does
    finally:
        bell.close()
