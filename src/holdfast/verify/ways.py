"""The ways from the workers to the servers: proxies of ours, several, so that one can fail while the others work.

Where no proxy fits in between, the workers connect as the URL says: a file, a Unix socket, TLS (whose certificate names the
server, not the proxy), and servers that send their clients elsewhere (Sentinel, Cluster).
"""

from __future__ import annotations

import re

from ..testing.closing import Closes
from ..testing.network import Network

_PORTS = {
    "redis": 6379,
    "redlock": 6379,
    "etcd": 2379,
    "zookeeper": 2181,
    "consul": 8500,
    "postgresql": 5432,
    "mysql": 3306,
    "mariadb": 3306,
}
_TLS = re.compile(r"[?&](sslmode|ssl|tls|ca|cafile|sslrootcert)=", re.IGNORECASE)
WAYS = 3


class Ways(Closes):
    def __init__(self, url: str, wanted: int) -> None:
        self.networks: list[Network] = []
        scheme = url.partition("://")[0]
        if scheme in _PORTS and not _TLS.search(url):
            self.networks = [Network(with_ports(url, _PORTS[scheme])) for _ in range(min(WAYS, wanted))]
        if not all(self.networks):
            self.close()
            self.networks = []
        self.urls = [network.url for network in self.networks] or [url]

    def __bool__(self) -> bool:
        """False: no proxy stands in between."""
        return bool(self.networks)

    def heal(self) -> None:
        for network in self.networks:
            network.heal()

    def close(self) -> None:
        for network in self.networks:
            network.close()


def with_ports(url: str, port: int) -> str:
    """The same URL with every port said.

    >>> with_ports("etcd://a,b:1/x", 2379)
    'etcd://a:2379,b:1/x'
    """
    scheme, slashes, rest = url.partition("://")
    end = min((rest.find(mark) for mark in "/?#" if mark in rest), default=len(rest))
    user, at, hosts = rest[:end].rpartition("@")
    said = ",".join(
        one if re.search(r":\d+$", one) and not one.endswith("]") else f"{one.rstrip(':') or '127.0.0.1'}:{port}"
        for one in hosts.split(",")
    )
    return f"{scheme}{slashes}{user}{at}{said}{rest[end:]}"
