"""Flask: an extension that connects, answers 409 with Retry-After, and puts views under a lock. See docs/flask.md.

holdfast = Holdfast(app)                        # app.config["HOLDFAST_URL"]; or Holdfast(), and later init_app(app)

@app.post("/orders/<int:order_id>/pay")
@holdfast.locked("order:{order_id}")
def pay(order_id, lease): ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Never
from weakref import WeakSet

from flask import Flask, Response, current_app, jsonify

from ..decorating import Key
from ..errors import Misuse
from ..recipes import DEFAULT_TTL, UNSET, Unset
from ..sync import Locks, connect
from .http import ANSWERED, CONFLICT, Answered, answer, valid_status
from .late import Late

__all__ = ["Holdfast"]


class _View(Late[Never]):
    """Of what is a view already, the lock would be left out without a word. (One of a blueprint is not known as such.)"""

    def __init__(self, apps: WeakSet[Flask], *late: Any) -> None:
        super().__init__(*late)
        self._apps = apps

    if not TYPE_CHECKING:

        def __call__(self, function):
            if any(function in app.view_functions.values() for app in self._apps):
                raise Misuse(
                    f"{function!r} is a view already, without the lock: write the lock below @app.route, next to `def`"
                )
            return super().__call__(function)


class Holdfast:
    """`status`: what a request is answered with whose lock somebody else has: 409, or 423."""

    def __init__(self, app: Flask | None = None, *, status: int = CONFLICT) -> None:
        self._status = valid_status(status)
        self._apps: WeakSet[Flask] = WeakSet()
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Connect to `app.config["HOLDFAST_URL"]`, or to what HOLDFAST_URL says. Nothing is sent until a lock is asked for."""
        if not isinstance(app, Flask):
            raise Misuse(
                f'Holdfast takes the application, not {type(app).__name__}: the URL is app.config["HOLDFAST_URL"]'
            )
        self._apps.add(app)
        app.extensions["holdfast"] = connect(app.config.get("HOLDFAST_URL"), label=app.name)
        for kind in ANSWERED:
            app.register_error_handler(kind, self._answer)

    @property
    def locks(self) -> Locks:
        """Of the application that handles this request."""
        locks = current_app.extensions.get("holdfast")
        if locks is None:
            raise Misuse(
                f"the application {current_app.name!r} has no locks: say holdfast.init_app(app) where it is made"
            )
        assert isinstance(locks, Locks)
        return locks

    def locked(
        self, name: str | Unset = UNSET, *, key: Key | None = None, ttl: float = DEFAULT_TTL, timeout: float | None = 0
    ) -> Late[Never]:
        """A view under a lock that is named by its arguments. Below `@app.route`; a view with a parameter `lease` is given it.

        `timeout`: how long to wait for it; 0 does not. Who does not get it is answered with 409 and Retry-After.
        """
        named: dict[str, Any] = {"key": key} if name is UNSET else {"name": name, "key": key}
        return _View(
            self._apps, lambda _: self.locks, lambda locks: locks.lock(**named, ttl=ttl, timeout=timeout), name, key
        )

    def _answer(self, error: Answered) -> Response:
        status, detail, headers = answer(error, self._status)
        response = jsonify({"detail": detail})
        response.status_code = status
        response.headers.update(headers)
        return response
