"""Locks as dependencies of FastAPI, and around Starlette's endpoints, on a real Redis."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Cookie, Depends, FastAPI, Header, Path, Query, Request
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from holdfast import Misuse, Unavailable, aio
from holdfast.contrib import starlette
from holdfast.contrib.fastapi import Lease, exception_handlers, lifespan, locked, locks_of
from holdfast.testing.servers.redis import Redis

pytestmark = pytest.mark.server


@asynccontextmanager
async def started(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    """As a server would: in its lifespan, and asked over ASGI."""
    here = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=here, base_url="http://test") as client:
        yield client


class Shop:
    """An application, and the request that is in its endpoint at the moment."""

    def __init__(self, url: str, **options: Any) -> None:
        self.inside = asyncio.Event()
        self.go_on = asyncio.Event()
        self.lease: Lease | None = None
        self.app = FastAPI(lifespan=lifespan(url), exception_handlers=exception_handlers)

        @self.app.post("/orders/{order_id}/pay")
        async def pay(
            order_id: int, lease: Annotated[Lease, Depends(locked("order:{order_id}", **{"ttl": 10, **options}))]
        ) -> dict[str, int]:
            self.lease = lease
            self.inside.set()
            await self.go_on.wait()
            return {"order": order_id, "token": lease.token}


def test_who_finds_an_order_taken_is_told_when_to_come_again(redis: Redis) -> None:
    async def main() -> None:
        shop = Shop(redis.url)
        async with started(shop.app) as client:
            first = asyncio.create_task(client.post("/orders/42/pay"))
            await asyncio.wait_for(shop.inside.wait(), 30)
            refused = await client.post("/orders/42/pay")
            assert refused.status_code == 409
            assert refused.json() == {"detail": "order:42 is in use"}
            assert 1 <= int(refused.headers["Retry-After"]) <= 10
            shop.go_on.set()
            assert (await first).json()["order"] == 42
            assert (await client.post("/orders/42/pay")).status_code == 200, "the first gave it back"

    asyncio.run(main())


def test_two_spellings_of_one_number_are_one_lock(redis: Redis) -> None:
    async def main() -> None:
        shop = Shop(redis.url)
        shop.go_on.set()
        async with started(shop.app) as client, aio.connect(redis.url) as others, others.lock("order:42"):
            assert (await client.post("/orders/042/pay")).status_code == 409

    asyncio.run(main())


def test_it_may_wait_and_it_may_answer_423(redis: Redis) -> None:
    async def main() -> None:
        shop = Shop(redis.url, timeout=0.05, status=423)
        async with started(shop.app) as client, aio.connect(redis.url) as others:
            async with others.lock("order:42"):
                assert (await client.post("/orders/42/pay")).status_code == 423
            shop.go_on.set()
            assert (await client.post("/orders/42/pay")).status_code == 200

    asyncio.run(main())


def test_a_parameter_that_is_wrong_is_answered_as_fastapi_does(redis: Redis) -> None:
    async def main() -> None:
        app = FastAPI(lifespan=lifespan(redis.url))

        @app.get("/items/{item_id}")
        async def item(
            item_id: Annotated[int, Path(ge=1)], kind: str, lease: Annotated[Lease, Depends(locked("{kind}:{item_id}"))]
        ) -> str:
            return lease.name

        async with started(app) as client:
            assert (await client.get("/items/7?kind=book")).json() == "book:7"
            wrong = await client.get("/items/x?kind=book")
            assert wrong.status_code == 422
            assert wrong.json()["detail"][0]["loc"] == ["path", "item_id"]
            assert (await client.get("/items/0?kind=book")).status_code == 422
            missing = await client.get("/items/7")
            assert missing.status_code == 422
            assert missing.json()["detail"][0]["loc"] == ["query", "kind"]

    asyncio.run(main())


@pytest.mark.parametrize(("file", "name"), [("x" * 513, "{file}"), ("a%00b", "{file}"), ("900000000", "{file:{file}}")])
def test_what_makes_no_name_is_the_fault_of_who_sent_it(redis: Redis, file: str, name: str) -> None:
    entered = []

    @starlette.locked(name)
    async def plain(request: Request) -> Response:
        raise AssertionError

    app = FastAPI(lifespan=lifespan(redis.url), routes=[Route("/plain/{file}", plain)])

    @app.get("/files/{file}")
    async def read(file: str, lease: Annotated[Lease, Depends(locked(name))]) -> None:
        entered.append(lease)

    async def main() -> None:
        async with started(app) as client:
            for where in ("plain", "files"):
                answer = await client.get(f"/{where}/{file}")
                assert answer.status_code == 400
                assert answer.json()["detail"].startswith("what was sent makes no name: ")
            assert await app.state.holdfast.names() == []

    asyncio.run(main())
    assert not entered


def test_parameters_may_have_other_names_and_defaults(redis: Redis) -> None:
    async def main() -> None:
        app = FastAPI(lifespan=lifespan(redis.url))
        name = locked("{kind}:{item_id}:{size}")

        @app.get("/items/{number}", dependencies=[Depends(name)])
        async def item(item_id: Annotated[int, Path(alias="number")], kind: str = Query("book"), size: int = 1) -> None:
            seen.append((await app.state.holdfast.names())[0])

        seen: list[str] = []
        async with started(app) as client:
            for query in ("", "?kind=pen&size=03"):
                assert (await client.get(f"/items/07{query}")).status_code == 200
            assert seen == ["book:7:1", "pen:7:3"]
            assert (await client.get("/items/x")).json()["detail"][0]["loc"] == ["path", "number"]

    asyncio.run(main())


def test_what_else_a_client_sends_does_not_name_the_lock(redis: Redis) -> None:
    """The lock is of what the endpoint is given; of what comes from elsewhere than path and query there is no lock at all."""
    locks = {"lease": Depends(locked("order:{order}"))}
    app = FastAPI(lifespan=lifespan(redis.url))

    async def known() -> str:
        return "42"

    @app.get("/by/query/{number}")
    async def by_query(
        order: Annotated[str, Query(alias="number")], lease: Annotated[Lease, locks["lease"]]
    ) -> tuple[str, str]:
        return order, lease.name

    @app.get("/by/header")
    async def by_header(
        lease: Annotated[Lease, locks["lease"]], order: Annotated[str, Header()] = "none"
    ) -> tuple[str, str]:
        return order, lease.name

    @app.get("/by/cookie")
    async def by_cookie(
        lease: Annotated[Lease, locks["lease"]], order: Annotated[str, Cookie()] = "none"
    ) -> tuple[str, str]:
        return order, lease.name

    @app.get("/by/dependency")
    async def by_dependency(
        lease: Annotated[Lease, locks["lease"]], order: Annotated[str, Depends(known)]
    ) -> tuple[str, str]:
        return order, lease.name

    @app.get("/by/another/name")
    async def by_another_name(
        lease: Annotated[Lease, locks["lease"]], order: Annotated[str, Query(validation_alias="number")]
    ) -> tuple[str, str]:
        return order, lease.name

    async def main() -> None:
        async with started(app) as client:
            assert (await client.get("/by/query/7?number=42&order=8")).json() == ["42", "order:42"]
            for elsewhere in ("header", "cookie", "dependency", "another/name"):
                sent = {"order": "42", "cookie": "order=42"}
                answer = await client.get(f"/by/{elsewhere}?order=8&number=42", headers=sent)
                assert answer.status_code == 500, "somebody has to mend it"

    asyncio.run(main())


@pytest.mark.parametrize("between", [[], [Middleware(BaseHTTPMiddleware, dispatch=lambda request, on: on(request))]])
def test_a_lock_that_is_lost_stops_the_endpoint_and_answers_503(redis: Redis, between: list[Middleware]) -> None:
    async def main() -> None:
        shop = Shop(redis.url, ttl=1)
        shop.app.user_middleware.extend(between)
        async with started(shop.app) as client, aio.connect(redis.url) as others:
            request = asyncio.create_task(client.post("/orders/42/pay"))
            await asyncio.wait_for(shop.inside.wait(), 30)
            assert shop.lease is not None
            await others.force_release("order:42", token=shop.lease.token)
            answered = await asyncio.wait_for(request, 30)  # it never was told to go on
            assert answered.status_code == 503
            assert answered.headers["Retry-After"] == "1"

    asyncio.run(main())


def test_a_client_that_hangs_up_leaves_no_lock_behind(redis: Redis) -> None:
    async def main() -> None:
        shop = Shop(redis.url)
        async with started(shop.app) as client, aio.connect(redis.url) as others:
            request = asyncio.create_task(client.post("/orders/42/pay"))
            await asyncio.wait_for(shop.inside.wait(), 30)
            request.cancel()
            async with asyncio.timeout(20), others.lock("order:42"):
                pass

    asyncio.run(main())


def test_an_endpoint_that_raises_gives_the_lock_back(redis: Redis) -> None:
    async def main() -> None:
        app = FastAPI(lifespan=lifespan(redis.url))

        @app.get("/", dependencies=[Depends(locked("x"))])
        async def broken() -> None:
            raise KeyError("a mistake")

        async with started(app) as client, aio.connect(redis.url) as others:
            assert (await client.get("/")).status_code == 500
            assert await others.names() == []

    asyncio.run(main())


def test_locks_that_are_taken_in_the_endpoint_are_answered_too(redis: Redis) -> None:
    async def main() -> None:
        app = FastAPI(lifespan=lifespan(redis.url), exception_handlers=exception_handlers)

        @app.get("/")
        async def here(locks: Annotated[aio.Locks, Depends(locks_of)]) -> None:
            async with locks.lock("x", timeout=0):
                pass

        async with started(app) as client, aio.connect(redis.url) as others, others.lock("x", ttl=10):
            refused = await client.get("/")
            assert refused.status_code == 409
            assert 1 <= int(refused.headers["Retry-After"]) <= 10
            assert "pid" not in refused.text
            assert str(shown_owner(await others.inspect("x"))) not in refused.text

    asyncio.run(main())


def shown_owner(snapshot: Any) -> str:
    return str(snapshot.holders[0].owner)


def test_a_store_that_is_not_there_ends_the_start_and_later_answers_503() -> None:
    async def main() -> None:
        nowhere = "redis://127.0.0.1:1?timeout=0.1"
        with pytest.raises(Unavailable):
            async with started(FastAPI(lifespan=lifespan(nowhere))):
                pass
        app = FastAPI(lifespan=lifespan(nowhere, check=False))

        @app.get("/", dependencies=[Depends(locked("x"))])
        async def here() -> None: ...

        async with started(app) as client:
            assert (await client.get("/")).status_code == 503
            await app.state.holdfast.close(timeout=0)  # else it would go on trying to release

    asyncio.run(main())


def test_a_lifespan_of_ones_own_runs_inside_and_sub_applications_share_the_locks(redis: Redis) -> None:
    async def main() -> None:
        story: list[str] = []

        @asynccontextmanager
        async def own(app: Any) -> AsyncIterator[dict[str, str]]:
            assert app.state.holdfast is not None
            story.append("begins")
            yield {"mine": "yes"}
            story.append("ends")

        @starlette.locked("order:{order_id}")
        async def pay(request: Request) -> Response:
            return JSONResponse(request.state.lease.name + request.state.mine)

        below = Starlette(routes=[Route("/orders/{order_id:int}", pay)])
        app = Starlette(routes=[Mount("/shop", below)], lifespan=starlette.lifespan(redis.url, also=own))
        async with app.router.lifespan_context(app) as state:

            async def with_state(scope: Any, receive: Any, send: Any) -> None:
                await app({**scope, "state": dict(state or {})}, receive, send)  # as servers do it

            here = httpx.ASGITransport(with_state)
            async with httpx.AsyncClient(transport=here, base_url="http://test") as client:
                assert (await client.get("/shop/orders/042")).json() == "order:42yes"
                async with aio.connect(redis.url) as others, others.lock("order:42"):
                    assert (await client.get("/shop/orders/42")).status_code == 409
        assert story == ["begins", "ends"]

    asyncio.run(main())


@pytest.mark.parametrize("wrong", ["order:{", "order:{0}", "order:{a.b}"])
def test_a_name_that_cannot_be_filled_in_is_refused_at_once(wrong: str) -> None:
    with pytest.raises(Misuse, match="order:"):
        locked(wrong)


def test_another_status_than_409_and_423_is_refused_at_once() -> None:
    with pytest.raises(Misuse, match="423"):
        locked("x", status=200)


def test_what_the_name_asks_for_must_be_a_parameter(redis: Redis) -> None:
    async def main() -> None:
        app = FastAPI(lifespan=lifespan(redis.url))

        @app.get("/", dependencies=[Depends(locked("order:{order_id}"))])
        async def here() -> None: ...

        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                with pytest.raises(Misuse, match="no such parameter"):
                    await client.get("/")

    asyncio.run(main())


def test_without_a_lifespan_it_says_what_is_missing() -> None:
    async def main() -> None:
        app = FastAPI()

        @app.get("/", dependencies=[Depends(locked("x"))])
        async def here() -> None: ...

        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            with pytest.raises(Misuse, match="lifespan"):
                await client.get("/")

    asyncio.run(main())


def test_a_lifespan_that_is_not_called_says_so() -> None:
    app = FastAPI(lifespan=lifespan)  # type: ignore[arg-type]  # what is tested
    with pytest.raises(Misuse, match=r"write lifespan=lifespan\(url\)"):
        app.router.lifespan_context(app)
