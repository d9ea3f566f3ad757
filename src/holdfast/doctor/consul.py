"""consul://, consuls://: by its HTTP API, on the wire that locks use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from ..drivers.base import finish
from ..drivers.dialing import is_local
from ..drivers.threads import Threads
from ..errors import Unavailable
from ..stores.consul.url import Target, parse
from ..stores.consul.wire import Wire
from ..stores.kit.url import show, tls_context
from .findings import Finding, Ward, ok, problem, unseen, warning
from .network import clocks, compare, http_time, secrecy

MATTERS = "sessions are counted by a clock that nobody sets; but ages of locks are shown by the clients' wall clocks"
USUAL_TTL_MIN = 10.0  # an agent that was told nothing says 0s
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class ConsulWard(Ward):
    order = ("version", "quorum", "persistence", "session ttl", "clock", "tls and login", "sessions")

    def __init__(self, target: Target) -> None:
        self.target = target
        self.driver = Threads()
        self.wire = Wire(target, self.driver)

    def get(self, path: str) -> Any:
        answer = finish(self.wire.ask("GET", path, b"", self.driver.now() + self.target.timeout))
        if answer.status not in (200, 429):  # the latter: of the health of servers, if it is bad
            raise Unavailable(f"GET {path}: {answer.status} {answer.body[:200].decode(errors='replace')}")
        return json.loads(answer.body)

    def close(self) -> None:
        self.wire.pool.close()

    def version(self) -> Iterator[Finding]:
        config = self.get("/v1/agent/self")["Config"]
        role = "a server" if config.get("Server") else "a client agent"
        yield ok(f"Consul {config['Version']}, {role} of {config['Datacenter']}")
        if config.get("Server") and len(self.target.addresses) == 1 and not is_local(self.target.addresses[0][0]):
            yield warning(
                "the URL names one server: when it is down, so are the locks",
                "name several, or the agent of this machine",
            )

    def quorum(self) -> Iterator[Finding]:
        leader, peers = self.get("/v1/status/leader"), self.get("/v1/status/peers")
        if not leader:
            yield problem("there is no leader: no lock can be had", "bring the servers back")
        if len(peers) == 1:
            yield warning("one server only: when it is down, no lock can be had", "run three")
        elif len(peers) % 2 == 0:
            yield warning(
                f"{len(peers)} servers survive the loss of {(len(peers) - 1) // 2}, as {len(peers) - 1} would",
                f"run {len(peers) - 1} or {len(peers) + 1}",
            )
        else:
            yield ok(f"{len(peers)} servers, led by {leader}")
        health = self.get("/v1/operator/autopilot/health")
        known = health.get("Servers") or ()  # a new leader does not know them yet
        for server in known:
            if not server["Healthy"]:
                yield warning(f"the server {server['Name']} is not well ({server['SerfStatus']})", "bring it back")
        if len(known) > 1 and not health.get("FailureTolerance"):
            yield problem("no further server may fail", "bring back those that are down")

    def persistence(self) -> Iterator[Finding]:
        if self.get("/v1/agent/self").get("DebugConfig", {}).get("DevMode"):
            yield warning(
                "it runs with -dev: everything is in memory, and forgotten when it ends", "run it with a data_dir"
            )
        else:
            yield ok("every grant is in the log of a majority of the servers")

    def session_ttl(self) -> Iterator[Finding]:
        said = self.get("/v1/agent/self").get("DebugConfig", {}).get("SessionTTLMin", "")
        least = _seconds(said) or (USUAL_TTL_MIN if said else None)
        if least is None:
            yield unseen("session_ttl_min of the agent")
        elif least > self.target.min_ttl:
            yield problem(
                f"the agents take no session under {least:g} s, and the URL says min_ttl={self.target.min_ttl:g}: such "
                "claims fail",
                f"write ?min_ttl={least:g}, or lower session_ttl_min in the agents",
            )
        else:
            yield ok(f"sessions from {max(least, self.target.min_ttl):g} s on")

    def clock(self) -> Iterator[Finding]:
        target = self.target
        tls = tls_context(target.ca, target.cert, target.cert_key) if target.tls else None
        found = [
            (show(one), compare(lambda at=one: http_time(at, tls, "/v1/status/leader", target.timeout), 1.0))  # type: ignore[misc]
            for one in target.addresses
        ]
        yield from clocks(found, MATTERS)

    def tls_and_login(self) -> Iterator[Finding]:
        target = self.target
        hosts = [host for host, _ in target.addresses]
        yield from secrecy(hosts, tls=target.tls, login=bool(target.token or target.cert), scheme="consuls://")
        config = self.get("/v1/agent/self").get("DebugConfig", {})
        if config.get("ACLsEnabled"):
            yield ok("ACLs are on: rights hang on the token")
            return
        open_to = [one for one in config.get("ClientAddrs", ()) if not is_local(str(one))]
        if open_to or not all(map(is_local, hosts)):
            yield problem(
                f"ACLs are off, and it listens on {', '.join(map(str, open_to)) or 'an address that others reach'}: "
                "whoever reaches it can take and release every lock",
                'switch ACLs on (acl.enabled, default_policy "deny"), with the policy of `holdfast migrate --acl`',
            )
        else:
            yield ok("ACLs are off, and only this machine can reach it")

    def sessions(self) -> Iterator[Finding]:
        ours = [one for one in self.get("/v1/session/list") if one.get("Name") == "holdfast"]
        longest = max((_seconds(str(one.get("TTL"))) or 0.0 for one in ours), default=0.0)
        yield ok(
            f"{len(ours)} sessions of processes that use holdfast" + (f", TTL up to {longest:g} s" if ours else "")
        )


def _seconds(text: str) -> float | None:
    """As Go writes a length of time: 1m0s, 200ms."""
    parts = re.findall(r"([0-9.]+)(ms|[hms])", text)
    return sum(float(number) * _UNITS[unit] for number, unit in parts) if parts else None


def admit(url: str) -> Ward:
    return ConsulWard(parse(url))
