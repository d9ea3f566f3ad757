"""The other libraries, as old code uses them: the real ones, on real servers."""

from __future__ import annotations

import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import holdfast

NAME = "42"  # an id for pg_advisory_lock, a name for all others


class Rival(Protocol):
    def take(self) -> bool: ...
    def give_back(self) -> None: ...
    def rob(self) -> None:
        """Whoever has the old lock has it no more, and is not told."""
        ...

    def close(self) -> None: ...


class Format(NamedTuple):
    """`also=`, and old code that uses the same lock."""

    also: str
    rival: Callable[[], Rival]


class RedisPy:
    def __init__(self, url: str) -> None:
        import redis

        self._client: Any = redis.Redis.from_url(url)
        # Of no thread: asyncio.to_thread() takes it in one, and gives it back in another.
        self._lock: Any = self._client.lock(f"job:{NAME}", timeout=60, thread_local=False)

    def take(self) -> bool:
        return bool(self._lock.acquire(blocking=False))

    def give_back(self) -> None:
        self._lock.release()

    def rob(self) -> None:
        self._client.delete(f"job:{NAME}")

    def close(self) -> None:
        self._client.close()


class RedisLock:
    def __init__(self, url: str) -> None:
        import redis_lock

        import redis

        self._client: Any = redis.Redis.from_url(url)
        self._lock: Any = redis_lock.Lock(self._client, NAME, expire=60)

    def take(self) -> bool:
        return bool(self._lock.acquire(blocking=False))

    def give_back(self) -> None:
        self._lock.release()

    def rob(self) -> None:
        self._lock.reset()

    def close(self) -> None:
        self._client.close()


class Kazoo:
    def __init__(self, hosts: str) -> None:
        from kazoo.client import KazooClient

        self._client: Any = KazooClient(hosts=hosts)
        self._client.start()
        self._lock: Any = None

    def take(self) -> bool:
        self._lock = self._client.Lock(f"/jobs/{NAME}")
        return bool(self._lock.acquire(blocking=False))

    def give_back(self) -> None:
        self._lock.release()

    def rob(self) -> None:
        for child in self._client.get_children(f"/jobs/{NAME}"):
            self._client.delete(f"/jobs/{NAME}/{child}")

    def close(self) -> None:
        self._client.stop()
        self._client.close()


class Curator(Kazoo):
    """The real one, in a Java of its own: Curator.java, compiled. kazoo is only there to rob it."""

    JARS = ":".join(
        f"/usr/share/java/{one}.jar"
        for one in (
            "curator-recipes",
            "curator-framework",
            "curator-client",
            "zookeeper",
            "zookeeper-jute",
            "slf4j-nop",
        )
    )

    def __init__(self, hosts: str, classes: Path) -> None:
        super().__init__(hosts)
        machine = ["java", "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{classes}:{self.JARS}"]
        self._old = subprocess.Popen(
            [*machine, "Curator", hosts, f"/jobs/{NAME}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    @classmethod
    def compiled(cls, into: Path) -> Path:
        subprocess.run(
            ["javac", "-cp", cls.JARS, "-d", str(into), Path(__file__).with_name("Curator.java")], check=True
        )
        return into

    def take(self) -> bool:
        return self._told("take")

    def give_back(self) -> None:
        assert self._told("give back")

    def _told(self, what: str) -> bool:
        assert self._old.stdin is not None
        assert self._old.stdout is not None
        self._old.stdin.write(f"{what}\n")
        self._old.stdin.flush()
        answer = self._old.stdout.readline()
        assert answer, "Curator's Java has ended: what it said is above"
        return answer == "true\n"

    def close(self) -> None:
        self._old.communicate()  # the end of its lines is its end
        super().close()


class Advisory:
    def __init__(self, url: str) -> None:
        import psycopg

        self._connection: Any = psycopg.connect(url, autocommit=True)

    def take(self) -> bool:
        return bool(self._connection.execute("SELECT pg_try_advisory_lock(%s)", (int(NAME),)).fetchone()[0])

    def give_back(self) -> None:
        self._connection.execute("SELECT pg_advisory_unlock(%s)", (int(NAME),))

    def rob(self) -> None:
        self._connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = %s", (int(NAME),)
        )

    def close(self) -> None:
        self._connection.close()


class ShedLock:
    """What ShedLock's JdbcTemplateLockProvider says with usingDbTime() on PostgreSQL; Debian has no package of its Java."""

    TABLE = (
        "CREATE TABLE IF NOT EXISTS shedlock (name VARCHAR(64) NOT NULL, lock_until TIMESTAMP NOT NULL, "
        "locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))"
    )
    TAKE = (
        "INSERT INTO shedlock(name, lock_until, locked_at, locked_by) VALUES(%(name)s, timezone('utc', CURRENT_TIMESTAMP) + "
        "%(most)s * interval '1 second', timezone('utc', CURRENT_TIMESTAMP), 'old host') ON CONFLICT (name) DO UPDATE SET "
        "lock_until = timezone('utc', CURRENT_TIMESTAMP) + %(most)s * interval '1 second', "
        "locked_at = timezone('utc', CURRENT_TIMESTAMP), "
        "locked_by = 'old host' WHERE shedlock.name = %(name)s AND shedlock.lock_until <= timezone('utc', CURRENT_TIMESTAMP)"
    )

    def __init__(self, url: str) -> None:
        import psycopg

        self._connection: Any = psycopg.connect(url, autocommit=True)
        self._connection.execute(self.TABLE)

    def take(self) -> bool:
        return bool(self._connection.execute(self.TAKE, {"name": NAME, "most": 60}).rowcount)

    def give_back(self) -> None:
        self._until_now("name = %s AND locked_by = 'old host'")

    def rob(self) -> None:
        self._until_now("name = %s")

    def _until_now(self, where: str) -> None:
        self._connection.execute(
            f"UPDATE shedlock SET lock_until = timezone('utc', CURRENT_TIMESTAMP) WHERE {where}",
            (NAME,),
        )

    def close(self) -> None:
        self._connection.close()


class ShedLockOnMySQL:
    """The same with usingDbTime() on MySQL and MariaDB: its MySqlServerTimeStatementsSource."""

    TABLE = (
        "CREATE TABLE IF NOT EXISTS shedlock(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP(3) NOT NULL, locked_at "
        "TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))"
    )
    UNTIL = "TIMESTAMPADD(MICROSECOND, 60000000, UTC_TIMESTAMP(3))"
    INSERT = (
        "INSERT IGNORE INTO shedlock(name, lock_until, locked_at, locked_by) "
        f"VALUES(%(name)s, {UNTIL}, UTC_TIMESTAMP(3), 'old host')"
    )
    UPDATE = (
        f"UPDATE shedlock SET lock_until = {UNTIL}, locked_at = UTC_TIMESTAMP(3), locked_by = 'old host' "
        "WHERE name = %(name)s AND lock_until <= UTC_TIMESTAMP(3)"
    )

    def __init__(self, url: str) -> None:
        import pymysql

        from holdfast.stores.mysql.url import parse

        target = parse(url)
        self._connection: Any = pymysql.connect(
            host=target.host, port=target.port, user=target.user, database=target.database, autocommit=True
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the table is there
            self._run(self.TABLE)

    def take(self) -> bool:
        return any(self._run(one) for one in (self.INSERT, self.UPDATE))

    def give_back(self) -> None:
        self._run("UPDATE shedlock SET lock_until = UTC_TIMESTAMP(3) WHERE name = %(name)s AND locked_by = 'old host'")

    def rob(self) -> None:
        self._run("UPDATE shedlock SET lock_until = UTC_TIMESTAMP(3) WHERE name = %(name)s")

    def _run(self, statement: str) -> bool:
        with self._connection.cursor() as cursor:
            return bool(cursor.execute(statement, {"name": NAME}))

    def close(self) -> None:
        self._connection.close()


class Holdfast:
    def __init__(self, url: str) -> None:
        self._locks = holdfast.connect(url)
        self._lease: holdfast.Lease | None = None

    def take(self) -> bool:
        self._lease = self._locks.lock(NAME).try_acquire()
        return self._lease is not None

    def give_back(self) -> None:
        assert self._lease is not None
        self._lease.release()

    def rob(self) -> None:
        (holder,) = self._locks.inspect(NAME).holders
        self._locks.force_release(NAME, token=holder.token)

    def close(self) -> None:
        self._locks.close()
