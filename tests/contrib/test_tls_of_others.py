"""A store that is made of other people's settings speaks TLS if they do, and trusts whom they trust."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from holdfast.contrib.addresses import tls_of_mysql
from holdfast.contrib.alembic import url_of
from holdfast.contrib.celery.stores import _url
from holdfast.errors import Misuse
from holdfast.secret import Secret

CA = {"ssl_cert_reqs": "required", "ssl_ca_certs": "/ca.pem"}


def of_broker(url: str, **settings: Any) -> str:
    conf = {"broker_url": url, **settings}
    found = _url(SimpleNamespace(conf=SimpleNamespace(get=conf.get, broker_url=url)))
    assert isinstance(found, Secret)
    return found.plain


@pytest.mark.parametrize(
    ("url", "use_ssl", "ours"),
    [
        ("redis://:pw@h:1/2", None, "redis://:pw@h:1/2"),
        ("redis://:pw@h:1/2?socket_timeout=5", None, "redis://:pw@h:1/2"),
        ("redis://:pw@h:1/2", True, "rediss://:pw@h:1/2"),
        ("redis://:pw@h:1/2", CA, "rediss://:pw@h:1/2?ca=%2Fca.pem"),
        ("rediss://:pw@h:1?ssl_cert_reqs=none&ssl_ca_certs=/ca.pem", None, "rediss://:pw@h:1?ca=%2Fca.pem"),
        (
            "rediss://h?ssl_certfile=/c&ssl_keyfile=/k",
            {"ssl_ca_certs": "/ca"},
            "rediss://h?ca=%2Fca&cert=%2Fc&cert_key=%2Fk",
        ),
    ],
)
def test_celerys_broker_is_asked_in_the_same_way(url: str, use_ssl: Any, ours: str) -> None:
    """Without TLS, the password would have gone to a server that waits for TLS, for everybody to read."""
    assert of_broker(url, broker_use_ssl=use_ssl) == ours


@pytest.mark.parametrize("use_ssl", [{"ssl_ciphers": "x"}, {"ssl_ca_data": "x"}, {"ssl_ca_path": "/x"}])
def test_what_we_could_not_do_as_well_is_refused(use_ssl: dict[str, str]) -> None:
    with pytest.raises(Misuse, match="holdfast_url"):
        of_broker("redis://h", broker_use_ssl=use_ssl)


@pytest.mark.parametrize(
    ("said", "ours"),
    [
        ({}, {}),
        ({"charset": "utf8mb4"}, {}),
        ({"ssl": {"ca": "/ca", "cert": "/c", "key": "/k"}}, {"ca": "/ca", "cert": "/c", "cert_key": "/k"}),
        ({"ssl": {"cipher": "x"}}, {"tls": "yes"}),
        ({"ssl": {}}, {}),
        ({"ssl": True}, {"tls": "yes"}),
        ({"ssl": "false"}, {}),
        ({"ssl_mode": "REQUIRED"}, {"tls": "yes"}),
        ({"ssl_mode": "verify_identity", "ssl": {"ca": "/ca"}}, {"ca": "/ca"}),
        ({"ssl_mode": "PREFERRED"}, {}),
        ({"ssl_mode": "DISABLED", "ssl": {"ca": "/ca"}}, {}),
        ({"ssl_disabled": True, "ssl_ca": "/ca"}, {}),
        ({"ssl_ca": "/ca", "ssl_check_hostname": "false"}, {"ca": "/ca"}),
        ({"ssl_verify_cert": "true"}, {"tls": "yes"}),
    ],
)
def test_of_mysql_whatever_asks_for_tls_does(said: dict[str, Any], ours: dict[str, str]) -> None:
    assert tls_of_mysql(said) == ours


@pytest.mark.parametrize(
    ("url", "ours"),
    [
        ("mysql+pymysql://u:pw@h/db?ssl_ca=/ca", "mysql://u:pw@h/db?ca=%2Fca"),
        ("mysql+mysqldb://u:pw@h/db?ssl_mode=REQUIRED", "mysql://u:pw@h/db?tls=yes"),
        ("mariadb+pymysql://u:pw@h/db?ssl=true&charset=utf8", "mysql://u:pw@h/db?tls=yes"),
        ("postgresql+asyncpg://u:pw@h/db?ssl=verify-full", "postgresql://u:pw@h/db?sslmode=verify-full"),
        ("postgresql+asyncpg://u:pw@h/db?ssl=true", "postgresql://u:pw@h/db?sslmode=require"),
        (
            "postgresql+psycopg://u:pw@h/db?require_auth=scram-sha-256&channel_binding=require",
            "postgresql://u:pw@h/db?require_auth=scram-sha-256&channel_binding=require",
        ),
    ],
)
def test_of_sqlalchemys_url_too(url: str, ours: str) -> None:
    found = url_of(make_url(url))
    assert isinstance(found, Secret)
    assert found.plain == ours
