"""Each library as its own documentation uses it, with its renewal switched on if it has one.

`take` waits for at most `timeout` and gives what is held, or None. `look` is what the library offers to ask whether the lock is
still held; None where it offers nothing. A fencing token only ours has: the registers of the others check nothing.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from ...errors import Misuse, NotAcquired


class Adapter:
    """One process's use of one library, on one server."""

    package: ClassVar[str]  # on PyPI
    kind: ClassVar[str] = "redis"  # of the server that it is tried on; "file" for none
    renews: ClassVar[bool] = False  # by itself, while it is held
    fences: ClassVar[bool] = False  # it issues tokens, so the register can check them

    def __init__(self, url: str, ttl: float) -> None:
        self.ttl = ttl
        self.server = urlsplit(url.split(",")[0])
        self.open(url)

    def open(self, url: str) -> None:
        raise NotImplementedError

    def take(self, name: str, timeout: float) -> Any:
        raise NotImplementedError

    def give(self, held: Any) -> None:
        held.release()

    def look(self, held: Any) -> bool | None:
        return None

    def token(self, held: Any) -> int:
        """0: it has none."""
        return 0

    def cancelled(self, name: str, after: float) -> bool | None:
        """Take it, and be cancelled after so many seconds: was it taken before that? None: it has no asyncio."""
        return None

    @classmethod
    def version(cls) -> str:
        return metadata.version(cls.package)


class _InAsyncio(Adapter):
    """The loop runs in a thread of its own, so that what the library renews in the background is renewed."""

    def __init__(self, url: str, ttl: float) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        super().__init__(url, ttl)

    def run(self, step: Coroutine[Any, Any, Any]) -> Any:
        running = asyncio.run_coroutine_threadsafe(step, self._loop)
        try:
            return running.result()
        except KeyboardInterrupt:
            running.cancel()  # as asyncio.run() does with what it runs
            raise

    async def taken(self, name: str, timeout: float) -> Any:
        raise NotImplementedError

    def take(self, name: str, timeout: float) -> Any:
        return self.run(self.taken(name, timeout))

    def cancelled(self, name: str, after: float) -> bool | None:
        async def cancel() -> bool:
            task = asyncio.ensure_future(self.taken(name, 5.0))
            await asyncio.sleep(after)
            task.cancel()
            try:
                held = await task
            except BaseException:  # whatever it makes of it
                return False
            if held:
                await self._given(held)
            return bool(held)

        return bool(self.run(cancel()))

    async def _given(self, held: Any) -> None:
        await held.release()

    def give(self, held: Any) -> None:
        self.run(self._given(held))


class _Holdfast(_InAsyncio):
    """Ours, in asyncio; a row like any other."""

    package = "holdfast"
    renews = True
    fences = True

    def open(self, url: str) -> None:
        async def connect() -> Any:
            return import_module("holdfast.aio").connect(url)

        self._locks = self.run(connect())

    async def taken(self, name: str, timeout: float) -> Any:
        try:
            return await self._locks.lock(name, ttl=self.ttl).acquire(timeout=timeout)
        except NotAcquired:
            return None

    def look(self, held: Any) -> bool | None:
        return not held.lost

    def token(self, held: Any) -> int:
        return int(held.token)


def _holdfast_on(store: str) -> type[_Holdfast]:
    return type(f"Holdfast on {store}", (_Holdfast,), {"kind": store})


class HoldfastSQLite(_Holdfast):
    kind = "file"

    def open(self, url: str) -> None:
        super().open(f"sqlite:///{url}/locks.db")


class RedisPy(Adapter):
    package = "redis"

    def open(self, url: str) -> None:
        self._client = import_module("redis").Redis.from_url(url)

    def take(self, name: str, timeout: float) -> Any:
        lock = self._client.lock(name, timeout=self.ttl, blocking_timeout=timeout)
        return lock if lock.acquire() else None

    def look(self, held: Any) -> bool | None:
        return bool(held.owned())


class RedisPyAsyncio(_InAsyncio):
    package = "redis"

    def open(self, url: str) -> None:
        self._client = import_module("redis.asyncio").Redis.from_url(url)

    async def taken(self, name: str, timeout: float) -> Any:
        lock = self._client.lock(name, timeout=self.ttl, blocking_timeout=timeout)
        return lock if await lock.acquire() else None

    def look(self, held: Any) -> bool | None:
        return bool(self.run(held.owned()))


class PythonRedisLock(Adapter):
    package = "python-redis-lock"
    renews = True

    def open(self, url: str) -> None:
        self._client = import_module("redis").Redis.from_url(url)

    def take(self, name: str, timeout: float) -> Any:
        """For no longer than it lives at a time: its waiters look again only when they are woken, or when their time is over."""
        lock = import_module("redis_lock").Lock(self._client, name, expire=round(self.ttl), auto_renewal=True)
        end = time.monotonic() + timeout
        while (left := end - time.monotonic()) > 1:
            if lock.acquire(timeout=round(min(left, self.ttl))):
                return lock
        return lock if lock.acquire(blocking=False) else None

    def look(self, held: Any) -> bool | None:
        return bool(held.get_owner_id() == held.id)


class Pottery(Adapter):
    package = "pottery"
    kind = "redlock"

    def open(self, url: str) -> None:
        redis = import_module("redis").Redis
        hosts = url.partition("://")[2].split(",")
        self._masters = {redis.from_url(f"redis://{host}") for host in hosts}

    def take(self, name: str, timeout: float) -> Any:
        lock = import_module("pottery").Redlock(key=name, masters=self._masters, auto_release_time=self.ttl)
        return lock if lock.acquire(blocking=True, timeout=timeout) else None

    def look(self, held: Any) -> bool | None:
        return bool(held.locked())


class AioRedlock(_InAsyncio):
    package = "aioredlock"
    kind = "redlock"
    renews = True

    def open(self, url: str) -> None:
        hosts = [f"redis://{host}" for host in url.partition("://")[2].split(",")]

        async def manager() -> Any:
            return import_module("aioredlock").Aioredlock(hosts, internal_lock_timeout=self.ttl)

        self._manager = self.run(manager())

    async def taken(self, name: str, timeout: float) -> Any:
        module, end = import_module("aioredlock"), time.monotonic() + timeout
        while True:  # it tries three times, and raises
            try:
                return await self._manager.lock(name)
            except module.LockAcquiringError:
                if time.monotonic() > end:
                    return None

    async def _given(self, held: Any) -> None:
        await self._manager.unlock(held)

    def look(self, held: Any) -> bool | None:
        return bool(self.run(self._manager.is_locked(held)))


class Sherlock(Adapter):
    package = "sherlock"

    def open(self, url: str) -> None:
        self._client = import_module("redis").Redis.from_url(url)

    def take(self, name: str, timeout: float) -> Any:
        module = import_module("sherlock")
        lock = module.RedisLock(
            name, client=self._client, expire=round(self.ttl), timeout=max(timeout, 0.01), retry_interval=0.05
        )
        try:
            return lock if lock.acquire() else None
        except module.LockTimeoutException:
            return None

    def look(self, held: Any) -> bool | None:
        return bool(held.locked())  # by anybody: it offers nothing else


class Kazoo(Adapter):
    package = "kazoo"
    kind = "zookeeper"
    renews = True

    def open(self, url: str) -> None:
        self._client = import_module("kazoo.client").KazooClient(url.partition("://")[2], timeout=self.ttl)
        self._client.start()

    def take(self, name: str, timeout: float) -> Any:
        lock = self._client.Lock(f"/{name.replace('/', '-')}", "somebody")
        try:
            return lock if lock.acquire(timeout=timeout) else None
        except import_module("kazoo.exceptions").LockTimeout:
            return None

    def look(self, held: Any) -> bool | None:
        """Its documentation: the lock is not to be relied on unless the session is connected."""
        return bool(self._client.connected and held.is_acquired)


class Etcd3gw(Adapter):
    package = "etcd3gw"
    kind = "etcd"

    def open(self, url: str) -> None:
        self._client = import_module("etcd3gw").client(
            host=self.server.hostname, port=self.server.port, api_path="/v3/", timeout=5
        )

    def take(self, name: str, timeout: float) -> Any:
        end = time.monotonic() + timeout
        lock = self._client.lock(name, ttl=max(1, round(self.ttl)))
        while not lock.acquire():  # it does not wait
            if time.monotonic() > end:
                return None
            time.sleep(0.05)
        return lock

    def look(self, held: Any) -> bool | None:
        return bool(held.is_acquired())


class Aetcd(_InAsyncio):
    package = "aetcd"
    kind = "etcd"

    def open(self, url: str) -> None:
        async def client() -> Any:
            return import_module("aetcd").Client(host=self.server.hostname, port=self.server.port, timeout=5)

        self._client = self.run(client())

    async def taken(self, name: str, timeout: float) -> Any:
        lock = self._client.lock(name.encode(), ttl=max(1, round(self.ttl)))
        return lock if await lock.acquire(timeout=max(timeout, 0.1)) else None

    def look(self, held: Any) -> bool | None:
        return bool(self.run(held.is_acquired()))


class PyConsul(Adapter):
    package = "py-consul"
    kind = "consul"

    def open(self, url: str) -> None:
        self._client = import_module("consul").Consul(host=self.server.hostname, port=self.server.port)

    def take(self, name: str, timeout: float) -> Any:
        """A key under a session with a ttl, as Consul's guide of locks has it; it has no renewal of its own."""
        session = self._client.session.create(ttl=max(10, round(self.ttl)), lock_delay=0, behavior="delete")
        end, renewed = time.monotonic() + timeout, time.monotonic()
        while not self._client.kv.put(name, "somebody", acquire=session):
            now = time.monotonic()
            if now > end:
                self._client.session.destroy(session)
                return None
            if now > renewed + 3:
                self._client.session.renew(session)
                renewed = now
            time.sleep(0.05)
        return name, session

    def give(self, held: Any) -> None:
        name, session = held
        self._client.kv.put(name, "nobody", release=session)
        self._client.session.destroy(session)

    def look(self, held: Any) -> bool | None:
        _, found = self._client.kv.get(held[0])
        return bool(found and found.get("Session") == held[1])


class Tooz(Adapter):
    package = "tooz"
    renews = True

    def open(self, url: str) -> None:
        coordination = import_module("tooz.coordination")
        address = f"redis://{self.server.hostname}:{self.server.port}?timeout={max(1, round(self.ttl))}"
        self._coordinator = coordination.get_coordinator(address, f"member-{threading.get_native_id()}".encode())
        self._coordinator.start(start_heart=True)

    def take(self, name: str, timeout: float) -> Any:
        lock = self._coordinator.get_lock(name.encode())
        return lock if lock.acquire(blocking=timeout if timeout > 0 else False) else None

    def look(self, held: Any) -> bool | None:
        return bool(held.is_still_owner())


class SqlalchemyDlock(Adapter):
    package = "sqlalchemy-dlock"
    kind = "postgresql"

    def open(self, url: str) -> None:
        sqlalchemy = import_module("sqlalchemy")
        self._engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))

    def take(self, name: str, timeout: float) -> Any:
        connection = self._engine.connect()
        lock = import_module("sqlalchemy_dlock").create_sadlock(connection, name)
        if lock.acquire(timeout=timeout):
            return connection, lock
        connection.close()
        return None

    def give(self, held: Any) -> None:
        connection, lock = held
        try:
            lock.release()
        finally:
            connection.close()

    def look(self, held: Any) -> bool | None:
        return bool(held[1].locked)


class DjangoPglock(Adapter):
    package = "django-pglock"
    kind = "postgresql"

    def open(self, url: str) -> None:
        settings = import_module("django.conf").settings
        if not settings.configured:
            database = {"ENGINE": "django.db.backends.postgresql", "NAME": "postgres", "USER": "postgres"}
            database |= {"HOST": self.server.hostname or "", "PORT": str(self.server.port)}
            settings.configure(DATABASES={"default": database}, INSTALLED_APPS=["pgactivity", "pglock"])
            import_module("django").setup()

    def take(self, name: str, timeout: float) -> Any:
        lock = import_module("pglock").advisory(name, timeout=timeout)
        return lock if lock.acquire() else None


class FileLock(Adapter):
    package = "filelock"
    kind = "file"

    def open(self, url: str) -> None:
        self._folder = Path(url)

    def take(self, name: str, timeout: float) -> Any:
        module = import_module("filelock")
        lock = module.FileLock(self._folder / f"{name.replace('/', '-')}.lock", timeout=timeout)
        try:
            lock.acquire()
        except module.Timeout:
            return None
        return lock

    def look(self, held: Any) -> bool | None:
        return bool(held.is_locked)


class DiskCache(Adapter):
    package = "diskcache"
    kind = "file"

    def open(self, url: str) -> None:
        self._cache = import_module("diskcache").Cache(url)

    def take(self, name: str, timeout: float) -> Any:
        """Its acquire() has no timeout: it is called when nobody is seen inside."""
        lock = import_module("diskcache").Lock(self._cache, name, expire=self.ttl)
        end = time.monotonic() + timeout
        while lock.locked():
            if time.monotonic() > end:
                return None
            time.sleep(0.001)
        lock.acquire()
        return lock

    def look(self, held: Any) -> bool | None:
        return bool(held.locked())  # by anybody: it offers nothing else


LIBRARIES: dict[str, type[Adapter]] = {
    "holdfast": _Holdfast,
    "holdfast-redlock": _holdfast_on("redlock"),
    "holdfast-etcd": _holdfast_on("etcd"),
    "holdfast-zookeeper": _holdfast_on("zookeeper"),
    "holdfast-consul": _holdfast_on("consul"),
    "holdfast-postgresql": _holdfast_on("postgresql"),
    "holdfast-sqlite": HoldfastSQLite,
    "redis-py": RedisPy,
    "redis-py-asyncio": RedisPyAsyncio,
    "python-redis-lock": PythonRedisLock,
    "sherlock": Sherlock,
    "tooz": Tooz,
    "pottery": Pottery,
    "aioredlock": AioRedlock,
    "etcd3gw": Etcd3gw,
    "aetcd": Aetcd,
    "kazoo": Kazoo,
    "py-consul": PyConsul,
    "sqlalchemy-dlock": SqlalchemyDlock,
    "django-pglock": DjangoPglock,
    "filelock": FileLock,
    "diskcache": DiskCache,
}


def adapter(name: str) -> type[Adapter]:
    """Misuse, if there is none, or it is not installed."""
    if name not in LIBRARIES:
        raise Misuse(f"there is no adapter for {name!r}; there are {', '.join(LIBRARIES)}")
    found = LIBRARIES[name]
    try:
        found.version()
    except metadata.PackageNotFoundError:
        raise Misuse(f"{name} is not installed: pip install {found.package}") from None
    return found
