"""From a URL to a store."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import pwd
import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

import holdfast
from holdfast import Misuse, Unavailable, connecting
from holdfast.drivers.base import Driver
from holdfast.secret import redacted
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ports


def test_without_a_url_the_file_is_in_the_users_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "with % and ?"))
    with holdfast.connect() as locks, locks.lock("x"):
        assert locks.traits.system == "sqlite"
    folder = tmp_path / "with % and ?" / "holdfast"
    assert (folder / "locks.db").exists()
    assert folder.stat().st_mode & 0o077 == 0, "nobody else may look into it"


def test_a_relative_state_folder_is_ignored_as_the_specification_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    monkeypatch.setattr(connecting, "_home", lambda: str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", "somewhere")
    assert connecting.resolve(None) == f"sqlite://{tmp_path}/.local/state/holdfast/locks.db"


def test_with_another_home_a_user_has_the_same_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As under sudo, in cron or in a service: the password database knows better."""
    mine = connecting._home()
    assert mine == pwd.getpwuid(os.getuid()).pw_dir
    monkeypatch.setenv("HOME", str(tmp_path))
    assert connecting._home() == mine

    def nobody(user: int) -> object:
        raise KeyError(user)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert connecting._home() == str(tmp_path), "a user without an entry"


def test_the_file_of_those_who_name_none_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    caplog.set_level("INFO", "holdfast")
    for _ in range(3):
        connecting.resolve(None)
    (told,) = [record.message for record in caplog.records if record.name == "holdfast"]
    assert told == f"no store was named: locks are those of this user, in {tmp_path}/holdfast/locks.db"


def test_the_environment_names_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_URL", "memory://from-the-environment")
    assert connecting.resolve(None) == "memory://from-the-environment"
    assert connecting.resolve("memory://named") == "memory://named"
    with holdfast.connect() as locks:
        assert locks.traits.system == "memory"


def test_connections_of_one_name_share_a_space_and_others_do_not() -> None:
    a, b, c = (holdfast.connect(f"memory://{name}") for name in ("one", "one/", "two"))
    with a, b, c, a.lock("x"):
        assert b.lock("x").try_acquire() is None
        assert c.lock("x").try_acquire() is not None


@pytest.mark.parametrize("url", ["", "memories", "://x", "Mem ory://", "1x://"])
def test_what_is_no_url_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(Misuse, match="is no store's URL: write it like sqlite:///path"):
        holdfast.connect(url)


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("localhost:6379", "redis://localhost:6379"),
        ("localhost:6379/0", "redis://localhost:6379/0"),
        ("10.0.0.7:2379", "etcd://10.0.0.7:2379"),
        ("[::1]:5432", "postgresql://[::1]:5432"),
        ("db.example:3306/app", "mysql://db.example:3306/app"),
        ("localhost:7000", "redis://localhost:7000, with the scheme of the store that it is"),
        ("/path/locks 100%.db", "sqlite:///path/locks 100%25.db"),
        ("sqlite:/path/locks.db", "sqlite:///path/locks.db"),
        ("memory:", "memory://…"),
        ("redis:/localhost", "redis://…"),
        ("Redis://localhost", "redis://…"),
        ("'redis://localhost'", "redis://…, without quotes or spaces around it"),
        (" redis://localhost\n", "redis://…, without quotes or spaces around it"),
        ("redis", "redis://localhost"),
        ("Postgres", "postgresql://localhost"),
        ("memory", "memory://"),
        ("localhost", "redis://localhost, with the scheme of the store that it is"),
    ],
)
def test_an_address_without_a_scheme_is_answered_with_the_url_that_was_meant(url: str, meant: str) -> None:
    with pytest.raises(Misuse) as refused:
        holdfast.connect(url)
    assert str(refused.value).endswith(f"is no store's URL: write it like {meant}")


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("reddis://localhost", "redis"),
        ("valkey://localhost", "redis"),
        ("etcd3://a,b,c", "etcd"),
        ("zk://a", "zookeeper"),
        ("pgsql://localhost/app", "postgresql"),
        ("postgresql+psycopg://me:hush@localhost/app", "postgresql"),
        ("mysql+pymysql://localhost/app", "mysql"),
        ("http://localhost:8500/", "consul"),
        ("https://localhost:2379", "etcd"),
    ],
)
def test_a_scheme_that_is_nearly_right_is_answered_with_the_one_that_was_meant(url: str, meant: str) -> None:
    with pytest.raises(Misuse) as refused:
        holdfast.connect(url)
    assert str(refused.value).endswith(f": did you mean {meant}://…?")
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("url", ["amqp://localhost", "http://localhost", "ftp://localhost:21"])
def test_a_scheme_that_is_nobodys_is_answered_with_those_that_are(url: str) -> None:
    with pytest.raises(Misuse, match=r"\(known: consul, .*, zookeepers\)"):
        holdfast.connect(url)


@pytest.mark.parametrize("word", ["host", "port", "password"])
def test_what_belongs_into_the_url_is_said_to_belong_there(word: str) -> None:
    with pytest.raises(Misuse, match=rf"connect\(\) takes no `{word}=`; here that is the URL, as in redis://"):
        holdfast.connect("memory://", **{word: "x"})  # type: ignore[arg-type]  # as a caller without types might


def test_a_store_that_is_not_there_is_found_out_when_connecting_if_asked() -> None:
    port = ports.ReservedPort()
    nowhere = f"redis://127.0.0.1:{port.number}"
    holdfast.connect(nowhere).close()
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1"):
        holdfast.connect(nowhere, check=True)

    async def main() -> None:
        locks = holdfast.aio.connect(nowhere, check=True)
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1"):
            await locks.__aenter__()
        with pytest.raises(Misuse, match="closed"):
            await locks.ping()

    asyncio.run(main())
    port.close()


def test_a_ping_tells_how_long_it_took(tmp_path: Path) -> None:
    with holdfast.connect(f"sqlite://{tmp_path}/locks.db", check=True) as locks:
        assert 0 < locks.ping() < 5
        assert locks.names() == [], "nothing is left of it"


def test_an_unknown_scheme_says_what_is_known() -> None:
    with pytest.raises(Misuse, match=r"by the scheme 'nosuch' \(known: .*memory.*sqlite.*\).*holdfast\.stores"):
        holdfast.connect("nosuch://host")


def test_a_url_that_is_no_text_is_refused() -> None:
    with pytest.raises(Misuse, match="must be a str, not bytes"):
        holdfast.connect(b"memory://")  # type: ignore[arg-type]  # as a caller without types might


def open_third_party(url: str, driver: Driver) -> MemoryStore:
    return MemoryStore(driver, f"third party: {url}")


def register(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    point = EntryPoint("thirdparty", f"{module}:open_third_party", connecting.ENTRY_POINTS)

    def points(group: str) -> EntryPoints:
        return EntryPoints([point] if group == connecting.ENTRY_POINTS else [])

    monkeypatch.setattr(importlib.metadata, "entry_points", points)


def test_a_store_that_lacks_a_package_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, "no_such_module")
    with pytest.raises(Misuse, match=r"'thirdparty' .* \(No module named 'no_such_module'\): install what it needs"):
        holdfast.connect("thirdparty://user:secret@host")


def test_another_package_brings_a_store_by_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, __name__)
    monkeypatch.setattr(EntryPoint, "load", lambda self: open_third_party)
    with holdfast.connect("thirdparty://host") as locks, locks.lock("x") as lease:
        assert lease.token > 0


def test_a_bad_label_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="a label must be printable"):
        holdfast.connect(f"sqlite://{tmp_path}/locks.db", label="a\nb")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:secret@host/0", "redis://user:***@host/0"),
        ("redis://:secret@host:6379", "redis://:***@host:6379"),
        ("redis://u:p@ss:w/rd?@host/0", "redis://u:***@host/0"),
        ("redis:/user:secret@host/0", "redis:/user:***@host/0"),
        ("redis:user:secret@host/0", "redis:user:***@host/0"),
        ("redis//user:secret@host/0", "redis//user:***@host/0"),
        ("NOT A SCHEME://:secret@host", "NOT A SCHEME://:***@host"),
        ("redis://host?password=secret&db=1", "redis://host?password=***&db=1"),
        ("redis://host?db=1&AUTH_TOKEN=secret", "redis://host?db=1&AUTH_TOKEN=***"),
        ("postgresql://host/db?sslpassword=secret#x", "postgresql://host/db?sslpassword=***#x"),
        ("sqlite:///a/b:c@d.db", "sqlite:///a/b:c@d.db"),
        ("memory://", "memory://"),
    ],
)
def test_a_password_is_not_shown(url: str, shown: str) -> None:
    assert redacted(url) == shown


def test_an_error_about_a_url_does_not_show_its_password() -> None:
    with pytest.raises(Misuse) as refused:
        holdfast.connect("NOT A SCHEME://user:secret@host")
    assert "secret" not in str(refused.value)


_PATCHED_LATE = """
import holdfast
locks = holdfast.connect("memory://late")
lease = locks.lock("x").acquire()
from gevent import monkey
monkey.patch_all()
import gevent
try:
    gevent.spawn(locks.lock("y").acquire).get()
except holdfast.Misuse as error:
    print(error)
"""


def test_gevent_that_comes_when_locks_are_held_already_is_told_to_come_first() -> None:
    """Before, all greenlets stood still at the first mutex that is waited for."""
    pytest.importorskip("gevent")
    done = subprocess.run(
        [sys.executable, "-c", _PATCHED_LATE], capture_output=True, text=True, timeout=60, check=False
    )
    assert "patch first, before a lock is taken" in done.stdout, done.stderr  # where gevent complains of threads, too


_PATCHED_AFTER_THE_FIRST = """
import holdfast
locks = holdfast.connect("memory://late")
with locks.lock("x"):
    pass
from gevent import monkey
monkey.patch_all()
import gevent
order = []
def turn():
    with locks.lock("x").acquire(timeout=20) as lease:
        order.append(lease.token)
with locks.lock("x") as lease:
    order.append(lease.token)
    waiting = gevent.spawn(turn)
    while not locks.inspect("x").waiters and not waiting.dead:
        gevent.sleep(0.01)
waiting.get(timeout=20)
assert order == sorted(order) and len(order) == 2
locks.close()
print("fine")
"""


def test_gevent_that_comes_when_nothing_is_held_any_more_is_in_time_for_who_was_there_before_too() -> None:
    """Who had used the connection before was known, and went on with what is no good any more: all others were refused."""
    pytest.importorskip("gevent")
    done = subprocess.run(
        [sys.executable, "-c", _PATCHED_AFTER_THE_FIRST], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "fine\n", done.stderr
