"""A cluster of etcd on simulated machines: one log, members that lag behind it, leaders that come and go.

What is modelled, since clients can see it: what quorum.py says; a leader that was deposed without noticing answers keep-alives
out of its own memory; a new leader gives every lease its whole time anew, and an election timeout more; leases end at the leader
only, twice a second; members tell watchers what they have applied, which may be later than others know of it. What is not: a
disk that fails, a cluster that loses its data, old revisions (our client never names one, so compaction does not concern it).
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from .....drivers.base import Address
from .....drivers.simulated import Process
from .....drivers.simulated_streams import SimulatedStream, Streams
from .....drivers.world import FOREVER, World
from .....stores.etcd import requests
from .....stores.etcd.channel import INVALID_ARGUMENT, UNAUTHENTICATED, UNAVAILABLE
from .....stores.etcd.replies import fields
from .....stores.etcd.requests import data, number
from ..quorum import LOOK, PATIENCE, Member, Quorum
from .frames import GOODBYE, Call, Conversation, Over
from .space import Pair, Refused, Space

_RANDOMLY = (requests.TXN, requests.RANGE, requests.LEASE_KEEP_ALIVE, requests.LEASE_REVOKE, requests.LEASE_GRANT)


class Watcher(NamedTuple):
    stream: int
    number: int
    key: bytes
    end: bytes

    def concerns(self, key: bytes) -> bool:
        return self.key <= key < self.end if self.end else key == self.key


class Line:
    """One connection of a client to a member."""

    def __init__(self, stream: SimulatedStream) -> None:
        self.stream = stream
        self.talk = Conversation()
        self.watchers: list[Watcher] = []

    def flush(self) -> None:
        if self.talk.outgoing:
            self.stream.put(self.talk.taken())


class Old(NamedTuple):
    """What a leader that was deposed still believes."""

    term: int
    revision: int
    leases: dict[int, int]  # and how long they live


class EtcdMember(Member):
    old: Old | None

    def __init__(self, cluster: EtcdCluster, process: Process, streams: Streams, address: Address) -> None:
        super().__init__(process, streams, address, self._serve)
        self.lag = 0.0  # seconds that it is behind the leader
        self.applied = cluster.space.revision
        self._cluster = cluster
        self._lines: list[Line] = []
        self._unapplied: deque[tuple[int, list[tuple[bytes, Pair | None]]]] = deque()

    # ---- conversations

    async def _serve(self, stream: SimulatedStream) -> None:
        line = Line(stream)
        self._lines.append(line)
        try:
            while received := await stream.receive(FOREVER):
                calls = line.talk.feed(received)
                if len(calls) > 1 and all(type(one) is Call and one.path in _RANDOMLY for one in calls):
                    self.world.random.shuffle(calls)  # streams of HTTP/2 are in no order
                for call in calls:
                    if type(call) is Over:
                        line.watchers = [one for one in line.watchers if one.stream != call.stream]
                    elif type(call) is Call:
                        self._hear(line, call)
                line.flush()
        except OSError:
            pass
        finally:
            if line in self._lines:
                self._lines.remove(line)

    def _hear(self, line: Line, call: Call) -> None:
        if call.path == requests.WATCH:
            self._watch(line, call)
        elif self.lag or not self._can_answer(call):
            self.process.spawn(lambda: self._answer_later(line, call), "a call")
        else:
            self._answer(line, call)

    def _can_answer(self, call: Call) -> bool:
        return self._cluster.in_touch(self) or (call.path == requests.LEASE_KEEP_ALIVE and self.believes)

    async def _answer_later(self, line: Line, call: Call) -> None:
        give_up = self.world.time + PATIENCE
        while not self._can_answer(call):
            if self.world.time > give_up:
                line.talk.end(call.stream, UNAVAILABLE, "etcdserver: request timed out")
                line.flush()
                return
            await self.process.driver.sleep(LOOK)
        self._answer(line, call)
        if self.lag:  # it answers when it has applied it
            await self.process.driver.sleep(self.lag)
        line.flush()

    def _answer(self, line: Line, call: Call) -> None:
        cluster = self._cluster
        try:
            if call.path == requests.LEASE_KEEP_ALIVE and not cluster.in_touch(self) and self.old is not None:
                lease = int(dict(fields(call.message)).get(1, 0))
                seconds = self.old.leases.get(lease, 0)
                if cluster.leader is self:  # not deposed yet, perhaps never: what it remembers is what counts
                    seconds = cluster.space.prolong(lease)
                answer = number(2, lease) + number(3, seconds)
                line.talk.say(call.stream, _header(self.old.revision, self.old.term) + answer)
            else:
                cluster.check_login(call)
                answer = cluster.ask(call)
                line.talk.say(call.stream, _header(cluster.space.revision, cluster.term) + answer)
            line.talk.end(call.stream)
        except Refused as refused:
            line.talk.end(call.stream, refused.code, str(refused))
        cluster.publish()

    # ---- watches

    def _watch(self, line: Line, call: Call) -> None:
        ((kind, request),) = fields(call.message)
        asked = dict(fields(bytes(request)))
        header = _header(self.applied, self._cluster.term)
        if kind == 1:
            if 3 in asked:
                raise NotImplementedError("our client watches from now on")
            number_ = int(asked.get(7, 0))
            try:
                self._cluster.check_login(call)
            except Refused as refused:
                why = number(3, 1) + number(4, 1) + data(6, str(refused).encode())
                line.talk.say(call.stream, header + number(2, 2**64 - 1) + why)
                return
            line.watchers.append(Watcher(call.stream, number_, bytes(asked[1]), bytes(asked.get(2, b""))))
            line.talk.say(call.stream, header + number(2, number_) + number(3, 1))
        elif kind == 2:
            number_ = int(asked[1])
            left = [one for one in line.watchers if one.number != number_]
            if len(left) < len(line.watchers):
                line.watchers = left
                line.talk.say(call.stream, header + number(2, number_) + number(4, 1))

    def apply_later(self, revision: int, changes: list[tuple[bytes, Pair | None]]) -> None:
        self._unapplied.append((revision, changes))
        if self.lag or len(self._unapplied) > 1 or not self.well:
            self.world.after(max(self.lag, 0.001), self._apply)
        else:
            self._apply()

    def _apply(self) -> None:
        if not self._unapplied:
            return
        if not self.well:
            self.world.after(LOOK, self._apply)
            return
        self.applied, changes = self._unapplied.popleft()
        for line in self._lines:
            told = False
            for watcher in line.watchers:
                events = b"".join(_event(key, pair, self.applied) for key, pair in changes if watcher.concerns(key))
                if events:
                    told = True
                    header = _header(self.applied, self._cluster.term)
                    line.talk.say(watcher.stream, header + number(2, watcher.number) + events)
            if told:
                line.flush()

    # ---- what happens to it

    def has_no_leader(self) -> None:
        """Streams that asked for one are ended."""
        if not self._cluster.in_touch(self) and self.up and not self.process.paused:
            for line in self._lines:
                for stream in {watcher.stream for watcher in line.watchers}:
                    line.talk.end(stream, UNAVAILABLE, "etcdserver: no leader")
                line.watchers.clear()
                line.flush()

    def restart(self, down: float) -> None:
        self._lines.clear()
        super().restart(down)

    def say_goodbye(self) -> None:
        """GOAWAY to everybody: what is under way is answered, and then it hangs up."""
        for line in list(self._lines):
            line.stream.put(GOODBYE)
            self.world.after(self.world.random.uniform(0.0, 0.1), line.stream.close)


class EtcdCluster(Quorum[EtcdMember]):
    """Members at those addresses. With a user and a password, whoever asks must have logged in."""

    tick = 0.5

    def __init__(
        self,
        world: World,
        streams: Streams,
        addresses: list[Address],
        login: tuple[str, str] | None = None,
        shortest_lease: int = 2,  # seconds: 1.5 election timeouts
    ) -> None:
        super().__init__(world)
        self.space = Space(lambda: world.time, shortest_lease)
        self._login = login
        self._tokens: set[bytes] = set()
        self._logins = 0
        self.members = [EtcdMember(self, Process(world, where[0]), streams, where) for where in addresses]
        self.leader = self.members[0]

    def ask(self, call: Call) -> bytes:
        if call.path == requests.LEASE_GRANT:
            self.begin_to_tick()
        answers = {
            requests.TXN: self.space.transact,
            requests.RANGE: self.space.range,
            requests.LEASE_KEEP_ALIVE: self.space.keep_alive,
            requests.LEASE_GRANT: self.space.grant,
            requests.LEASE_TIME_TO_LIVE: self.space.time_to_live,
            requests.LEASE_REVOKE: self.space.revoke,
            requests.AUTHENTICATE: self._log_in,
        }
        return answers[call.path](call.message)

    def publish(self) -> None:
        changes = self.space.changes()
        if changes:
            for member in self.members:
                member.apply_later(self.space.revision, changes)

    def ends(self) -> dict[int, float]:
        return {lease: one.ends for lease, one in self.space.leases.items()}

    def end(self, lease: int) -> None:
        self.space.end(lease)
        self.publish()

    # ---- logins

    def _log_in(self, message: bytes) -> bytes:
        asked = dict(fields(message))
        if self._login is None:
            raise Refused(9, "etcdserver: authentication is not enabled")
        if (asked.get(1), asked.get(2)) != tuple(word.encode() for word in self._login):
            raise Refused(INVALID_ARGUMENT, "etcdserver: authentication failed, invalid user ID or password")
        self._logins += 1
        token = b"token.%d" % self._logins
        self._tokens.add(token)
        return data(2, token)

    def check_login(self, call: Call) -> None:
        if self._login is None or call.path in (requests.AUTHENTICATE, requests.LEASE_KEEP_ALIVE):
            return
        if not call.token:
            raise Refused(INVALID_ARGUMENT, "etcdserver: user name is empty")
        if call.token not in self._tokens:
            raise Refused(UNAUTHENTICATED, "etcdserver: invalid auth token")

    def end_logins(self) -> None:
        self._tokens.clear()

    # ---- leaders

    def memory(self) -> Old:
        return Old(self.term, self.space.revision, {lease: one.seconds for lease, one in self.space.leases.items()})

    def promoted(self) -> None:
        for lease in self.space.leases.values():
            lease.ends = self.world.time + lease.seconds + self.election

    def heal(self) -> None:
        super().heal()
        for member in self.members:
            member.lag = min(member.lag, 0.002)


def _header(revision: int, term: int) -> bytes:
    return data(1, number(3, revision) + number(4, term))


def _event(key: bytes, pair: Pair | None, revision: int) -> bytes:
    if pair is None:
        return data(11, number(1, 1) + data(2, data(1, key) + number(3, revision)))
    return data(11, data(2, pair.packed(key)))
