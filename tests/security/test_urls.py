"""Every URL is understood or refused in our words; what is shown of it has no secret, and leads to the same place."""

from __future__ import annotations

import logging
from pathlib import Path
from urllib.parse import quote

import pytest

import holdfast
from holdfast.connecting import BUILT_IN
from holdfast.errors import HoldfastError, Misuse
from holdfast.secret import redacted
from holdfast.stores.consul.url import parse as consul
from holdfast.stores.etcd.url import parse as etcd
from holdfast.stores.mysql.url import parse as mysql
from holdfast.stores.postgresql.url import parse as postgresql
from holdfast.stores.redis.url import parse as redis
from holdfast.stores.zookeeper.url import parse as zookeeper

from ..properties import example, examples, given, st
from .test_secrets import PASSWORD, everything_told

SCHEMES = sorted(BUILT_IN)
letters = st.sampled_from(
    [
        *"?@/#:%,&=[]. -_~aZ19é\n\x1b\0²",
        "%zz",
        "%2",
        "%00",
        "%ff",
        "::1",
        "[::1]",
        "..",
        "localhost",
        "9" * 5000,
        "\ud800",
    ]
)
texts = st.lists(letters, max_size=4).map("".join)
hosts = st.one_of(
    st.sampled_from(["", "h", "127.0.0.1:1", "a,b,c", "[::1]:1", "a:0", "a:99999", "a:" + "9" * 5000]), texts
)
OPTIONS = [
    "timeout",
    "prefix",
    "ca",
    "cert",
    "cert_key",
    "tls",
    "mode",
    "pool",
    "retention",
    "db",
    "token",
    "node",
    "dc",
    "acl",
]
OPTIONS += ["auth", "schema", "replicas", "sslmode", "password", "durability", "bell", "nonsense", "", "é"]
options = st.lists(
    st.tuples(
        st.sampled_from(OPTIONS),
        st.one_of(
            st.sampled_from(["1", "0", "-1", "nan", "1e9", "yes", "no", "x" * 300, "/no/such/file", "9" * 5000]), texts
        ),
    ),
    max_size=3,
).map(lambda pairs: "&".join(f"{key}={value}" for key, value in pairs))


class Told(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@examples(150)
@given(
    scheme=st.sampled_from(SCHEMES),
    login=st.sampled_from(["", f"user:{PASSWORD}@", f":{PASSWORD}@", f"user:%41{PASSWORD}@", f"u:{PASSWORD}%zz@"]),
    host=hosts,
    path=texts,
    query=options,
)
@example(scheme="redis", login=f"u:{PASSWORD}@", host="a:" + "9" * 5000, path="", query="")
@example(scheme="zookeeper", login=f"u:{PASSWORD}@", host="a:" + "9" * 5000, path="", query="")
@example(scheme="mysql", login=f"u:{PASSWORD}@", host="a:" + "9" * 5000, path="db", query="")
@example(scheme="postgresql", login=f"u:{PASSWORD}\udcff@", host="a", path="db", query="")
@example(scheme="postgresql", login=f"u:{PASSWORD}@", host="a", path="db", query="x\ud800=y")
@example(scheme="postgresql", login=f"u:{PASSWORD}%ff@", host="a", path="db", query="")
def test_a_url_is_understood_or_refused_and_shows_no_password(
    scheme: str, login: str, host: str, path: str, query: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if scheme in ("sqlite", "unix"):
        host, path = str(tmp_path_factory.getbasetemp()), path.replace("/", "")
    url = f"{scheme}://{login}{host}/{path}?{query}"
    told = Told()
    logging.getLogger("holdfast").addHandler(told)
    shown = redacted(url)
    try:
        locks = holdfast.connect(url)
        shown += repr(locks) + repr(getattr(locks._engine.store, "_target", "")) + locks._engine.where
        locks.close(timeout=0)
    except HoldfastError as error:
        shown += everything_told(error)
    finally:
        logging.getLogger("holdfast").removeHandler(told)
    assert PASSWORD not in shown + "".join(told.lines)


names = st.text("abz09-", min_size=1, max_size=8).filter(lambda name: name.strip("-") == name)
addresses = st.lists(
    st.tuples(st.one_of(names, st.sampled_from(["127.0.0.1", "::1", "2001:db8::7"])), st.integers(1, 65535)),
    min_size=1,
    max_size=3,
    unique=True,
)


def _written(where: list[tuple[str, int]]) -> str:
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in where)


@examples(60)
@given(where=addresses, root=names)
@example(where=[("::1", 7)], root="x")
def test_what_is_shown_of_a_url_leads_to_the_same_place(where: list[tuple[str, int]], root: str) -> None:
    login, hosts = f"user:{PASSWORD}@", _written(where)
    shown: list[str] = []

    found = etcd(f"etcd://{login}{hosts}/{root}")
    assert etcd(f"etcd://{found.shown()}").addresses == found.addresses == tuple(where)
    shown.append(repr(found))
    ensemble = zookeeper(f"zookeeper://{login}{hosts}/{root}")
    again = zookeeper(f"zookeeper://{ensemble.shown()}")
    assert (again.addresses, again.root) == (ensemble.addresses, ensemble.root) == (tuple(where), f"/{root}")
    shown.append(repr(ensemble))
    agents = consul(f"consul://:{PASSWORD}@{hosts}/{root}")
    assert consul(f"consul://{repr(agents).strip('<>')}").addresses == agents.addresses == tuple(where)
    shown.append(repr(agents))
    watched = redis(f"redis+sentinel://{login}{hosts}/{root}")
    again_watched = redis(f"redis+sentinel://{watched.shown()}")
    assert (
        (again_watched.addresses, again_watched.service) == (watched.addresses, watched.service) == (tuple(where), root)
    )
    shown.append(repr(watched))
    one = redis(f"redis://{login}{_written(where[:1])}")
    assert redis(f"redis://{one.shown()}").addresses == (where[0],)
    database = mysql(f"mysql://{login}{_written(where[:1])}/{root}")
    again_database = mysql(f"mysql://{database.shown()}")
    assert (again_database.host, again_database.port, again_database.database) == (*where[0], root)
    shown += [repr(one), repr(database), repr(postgresql(f"postgresql://{login}{hosts}/{root}"))]
    assert PASSWORD not in "".join(shown)


def test_a_port_has_five_digits_at_most() -> None:
    for read, scheme in (
        (redis, "redis"),
        (etcd, "etcd"),
        (consul, "consul"),
        (zookeeper, "zookeeper"),
        (mysql, "mysql"),
    ):
        with pytest.raises(Misuse):
            read(f"{scheme}://a:{'9' * 5000}/db")


def test_a_target_never_shows_its_password() -> None:
    login = f"user:{PASSWORD}@127.0.0.1:1"
    for target in (
        redis(f"redis://{login}/0"),
        etcd(f"etcd://{login}/x"),
        zookeeper(f"zookeeper://{login}/x"),
        mysql(f"mysql://{login}/db"),
    ):
        assert PASSWORD not in f"{target!r} {target} {target.password!r} {tuple(target)!r}"


@examples(60)
@given(
    password=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).map(
        lambda text: f"{PASSWORD}{text}"
    )
)
def test_no_password_in_what_is_redacted(password: str) -> None:
    for url in (
        f"redis://user:{quote(password)}@h/0",
        f"redis://h?password={quote(password)}",
        f"consul://h?token={quote(password)}",
    ):
        assert PASSWORD not in redacted(url)


def test_a_file_that_no_system_can_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misuse):
        holdfast.connect(f"sqlite://{tmp_path}/\ud800.db")
