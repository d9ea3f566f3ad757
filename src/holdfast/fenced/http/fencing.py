"""What the middlewares of ASGI and WSGI are made with."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Generic, TypeVar

from .gate import PATIENCE, AsyncGate, ThreadGate
from .request import warn_of_workers
from .signature import Signer

App = TypeVar("App")
Request = TypeVar("Request")
Marks = TypeVar("Marks")
Gate = TypeVar("Gate", AsyncGate, ThreadGate)


class Fencing(Generic[App, Request, Marks, Gate]):
    _gates: ClassVar[type[AsyncGate] | type[ThreadGate]]
    gate: Gate

    def __init__(
        self,
        app: App,
        *,
        signer: Signer | None = None,
        required: bool = True,
        resource: Callable[[Request], str | None] | None = None,
        marks: Marks | None = None,
        max_jump: int | None = None,
        patience: float = PATIENCE,
    ) -> None:
        """`required`: a request that may change something must carry a token; reading without one is always allowed.
        `resource`: the name of what a request is about; a token for something else is refused. Without it a token for any
        resource opens every route, and the handler has to compare. `marks`: records a mark in storage that all processes
        share, or raises StaleToken."""
        self._app = app
        self._signer = signer
        self._required = required
        self._resource = resource
        self._marks = marks
        self._warned = marks is not None
        self.gate = self._gates(max_jump=max_jump, patience=patience)  # type: ignore[assignment]

    def _warn_once(self, several: bool) -> None:
        """Of other processes, whose marks are not these."""
        self._warned = True
        if several:
            warn_of_workers()
