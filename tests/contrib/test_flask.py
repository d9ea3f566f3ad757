"""Flask views under a lock, on a real Redis."""

from __future__ import annotations

from collections.abc import Iterator

import flask
import pytest

from holdfast import Lease, Locks, Misuse, connect
from holdfast.contrib.flask import Holdfast
from holdfast.testing.servers.redis import Redis

pytestmark = pytest.mark.server

extension = Holdfast()  # as people write it: before there is an application
shop = flask.Blueprint("shop", __name__)


@shop.post("/orders/<int:order_id>/pay")
@extension.locked("order:{order_id}", ttl=10)
def pay(order_id: int, lease: Lease) -> dict[str, object]:
    return {"order": order_id, "name": lease.name, "held": lease.held}


@shop.get("/files/<path:file>")
@extension.locked("{file}")
def read(file: str) -> str:
    return "read"


@shop.get("/by-hand")
def by_hand() -> str:
    with extension.locks.lock("by hand", timeout=0):
        return "done"


@shop.get("/lost")
@extension.locked("lost")
def lost(lease: Lease) -> str:
    extension.locks.force_release("lost", token=lease.token)
    return "this answer is not to be believed"


@pytest.fixture
def app(redis: Redis) -> Iterator[flask.Flask]:
    made = flask.Flask("shop")
    made.config["HOLDFAST_URL"] = redis.url
    extension.init_app(made)
    made.register_blueprint(shop)
    yield made
    made.extensions["holdfast"].close()


@pytest.fixture
def others(redis: Redis) -> Iterator[Locks]:
    with connect(redis.url) as locks:
        yield locks


def test_a_view_runs_under_the_lock_that_its_arguments_name(app: flask.Flask, others: Locks) -> None:
    client = app.test_client()
    assert client.post("/orders/042/pay").get_json() == {"order": 42, "name": "order:42", "held": True}
    assert others.names() == []


def test_who_finds_it_taken_is_told_when_to_come_again(app: flask.Flask, others: Locks) -> None:
    with others.lock("order:42", ttl=10):
        refused = app.test_client().post("/orders/42/pay")
    assert refused.status_code == 409
    assert refused.get_json() == {"detail": "order:42 is in use"}
    assert 1 <= int(refused.headers["Retry-After"]) <= 10


@pytest.mark.parametrize("file", ["x" * 513, "a%00b"])
def test_what_makes_no_name_is_the_fault_of_who_sent_it(app: flask.Flask, others: Locks, file: str) -> None:
    answer = app.test_client().get(f"/files/{file}")
    assert answer.status_code == 400
    assert answer.get_json()["detail"].startswith("what was sent makes no name: a name m")
    assert others.names() == []


def test_a_lock_that_the_view_takes_itself_is_answered_too(app: flask.Flask, others: Locks) -> None:
    client = app.test_client()
    assert client.get("/by-hand").text == "done"
    with others.lock("by hand"):
        assert client.get("/by-hand").status_code == 409


def test_an_answer_that_was_made_without_the_lock_is_not_given(app: flask.Flask) -> None:
    assert app.test_client().get("/lost").status_code == 503


def test_a_store_that_does_not_answer_is_503() -> None:
    app = flask.Flask("elsewhere")
    app.config["HOLDFAST_URL"] = "redis://127.0.0.1:1?timeout=0.1"
    Holdfast(app)
    app.register_blueprint(shop)
    assert app.test_client().get("/by-hand").status_code == 503


def test_another_application_has_other_locks_and_another_status(redis: Redis, others: Locks) -> None:
    app = flask.Flask("second")
    app.config["HOLDFAST_URL"] = "memory://second"
    Holdfast(app, status=423)
    app.register_blueprint(shop)
    with others.lock("order:42"):
        assert app.test_client().post("/orders/42/pay").status_code == 200
    with app.extensions["holdfast"].lock("order:42"):
        assert app.test_client().post("/orders/42/pay").status_code == 423


def test_an_application_without_the_extension_says_so() -> None:
    app = flask.Flask("bare")
    with app.app_context(), pytest.raises(Misuse, match="init_app"):
        _ = extension.locks


def test_a_wrong_name_is_refused_when_the_view_is_decorated() -> None:
    with pytest.raises(Misuse, match="no such parameter"):
        extension.locked("order:{order_id}")(lambda: "")


def test_a_view_that_would_stay_without_the_lock_is_refused() -> None:
    app = flask.Flask("upside-down")
    app.config["HOLDFAST_URL"] = "memory://upside-down"
    locks = Holdfast(app)

    def view() -> str:
        return "not locked"

    with pytest.raises(Misuse, match="is a view already, without the lock"):
        locks.locked("x")(app.get("/")(view))


def test_a_url_in_the_place_of_the_application_is_told_where_it_goes() -> None:
    with pytest.raises(Misuse, match=r'app\.config\["HOLDFAST_URL"\]'):
        Holdfast("redis://localhost")  # type: ignore[arg-type]  # what is tested
