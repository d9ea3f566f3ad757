"""What each store promises, and, as plainly, what it does not: one row a store. What the fields mean is told by `Traits`.

A store whose URL or server says something else changes its row, and only that field: `locks.traits` is what holds.
"""

from __future__ import annotations

from functools import partial

from ..claim import Traits

_store = partial(Traits, scope="network", fair=True, bell=True)
_THE_SERVERS = "the server's wall clock: set forward it ends leases early, set back it lengthens them by a ttl at most"

MEMORY = _store(
    system="memory",
    scope="process",
    fenced="yes: last token + 1, or wall time in µs if that is more, so they rise across restarts too",
    durable="nothing: all is forgotten when the process ends",
    clock="the process's monotonic clock, suspend included",
    survives="nothing: it is one process",
)
SQLITE = _store(
    system="sqlite",
    scope="machine",
    fenced="yes: last token + 1, or wall time in µs if that is more, so they rise even if the file is lost",
    durable="a killed process; not a power cut, which nobody who held a lock outlives either",
    clock="the machine's boot clock, suspend included; where there is none (not Linux), the wall clock",
    survives="kill -9 of any process; not the loss of the machine",
)
REDIS = _store(
    system="redis",
    fenced="yes: last token + 1, or the server's time in µs if that is more, so they rise through a flush, an empty "
    "restart, an expired counter and a failover to a stale replica (unless its clock lags by more than that took: then "
    "the storage refuses the low token)",
    durable="what its AOF or RDB keeps; a lock that is forgotten may be granted again, with a higher token",
    clock=_THE_SERVERS,
    survives="kill -9 of any client; a failover only with weak consistency: replication is asynchronous, so the new "
    "master may not know a lock and grant it again. Two then believe they hold it; only fenced storage stays correct",
)
REDLOCK = _store(
    system="redlock",
    fenced="yes: proposed by the client, accepted by a majority of nodes only if higher than any before; no clock is trusted",
    fair=False,
    bell=False,
    durable="what the nodes' AOF keeps: a node that comes back empty must stay away for the longest ttl, or with its "
    "forgotten majority a lock may be granted twice",
    clock="each node's wall clock, for how long; the client's monotonic clock decides, with 1 % and 2 ms for drift",
    survives="the loss of a minority of nodes; kill -9 of any client",
)
POSTGRESQL = _store(
    system="postgresql",
    fenced="yes: kept in the row that grants, in the same transaction; last token + 1, or the server's time in µs if that is "
    "more, so they rise through a deleted row, an emptied or restored database and a failover to a stale replica (unless "
    "its clock lags by more than that took: then the storage refuses the low token)",
    durable="every grant, by the database's own log; a release or renewal of the last 0.6 s may be lost in a crash of the "
    "server, which only delays the next holder (until its client says it again, or the ttl ends) or shortens the lease",
    clock=_THE_SERVERS,
    survives="kill -9 of any client; crash and restart of the server. A failover to an asynchronous replica may forget the "
    "latest grants: two then believe they hold it; only fenced storage stays correct",
)
POSTGRESQL_RELAXED = POSTGRESQL._replace(
    durable="tokens, by the server's clock; a grant of the last 0.6 s may be lost in a crash of the server, and then be granted "
    "again with a higher token (durability=relaxed)"
)
POSTGRESQL_SESSIONS = _store(
    system="postgresql",
    fenced="yes: minted in a table in the statement that takes the lock; last token + 1, or the server's time in µs if that is "
    "more",
    durable="tokens; a lock lives with its connection, and no crash of the server leaves it behind",
    clock="none: a lock lives as long as its connection; one that was silent for a ttl is ended, by the holder or by the server",
    survives="kill -9 of any client. A restart or failover of the server ends all locks: their holders are told at once",
)
POSTGRESQL_SESSIONS_RELAXED = POSTGRESQL_SESSIONS._replace(
    durable="tokens, by the server's clock: one of the last 0.6 s may be forgotten in a crash, which ends its lock too "
    "(durability=relaxed)"
)
MYSQL = _store(
    system="mysql",
    fenced="yes: last token + 1, or the server's time in µs if that is more, committed with the claim, so they rise through "
    "a rollback, a crash, an empty restart and a restored backup (unless the clock lags by more: then the storage refuses)",
    durable="every claim is on the server's disk before it is answered, if innodb_flush_log_at_trx_commit is 1, as it is by "
    "default",
    clock=_THE_SERVERS,
    survives="kill -9 of any client; a crash of the server; a failover only if replication is synchronous: else the new "
    "primary may not know a lock and grant it again, and only fenced storage stays correct",
)
MYSQL_SESSIONS = _store(
    system="mysql session",
    fenced="yes: last token + 1, or the server's time in µs if that is more, committed while the lock is held",
    fair=False,
    durable="tokens are, as InnoDB commits them; a lock ends with its connection, and so with the server",
    clock="none for a connection that lives; one that is silent is ended by the server after a ttl, rounded up to seconds",
    survives="kill -9 of any client; not a failover or a restart, which free all locks, nor a pooler between",
)
ETCD = _store(
    system="etcd",
    fenced="yes: the revision of etcd's log at which the claim entered",
    durable="everything that was acknowledged: a majority has it on disk",
    clock="each process ends its own claims on time, by its monotonic clock; those of a process that died are ended by the "
    "leader's: whole seconds, one or two more than the ttl, at least 1.5 election timeouts, and up to as much again "
    "after a change of leader",
    survives="kill -9 of any client; any minority of members dead, paused or cut off. Without a majority nothing is granted",
)
ZOOKEEPER = _store(
    system="zookeeper",
    fenced="yes: the ensemble's transaction ids, which rise through crashes and elections of leaders",
    durable="what a quorum has written to disk; a lock dies with the session of its holder",
    clock="the leader's monotonic clock ends sessions; a holder counts by its own, and a quarter shorter",
    survives="kill -9 of any client, the loss of any minority of the ensemble, elections of leaders",
    min_ttl=0.5,
)
CONSUL = _store(
    system="consul",
    fenced="yes: the index of the write in Consul's log that let the holder in",
    durable="all that a majority of the servers has written to disk",
    clock="the holder's own clock while it lives; after its death the leader's, which ends a session between 9/8 and 9/4 of "
    "the ttl after its last renewal",
    survives="the loss of any minority of the servers; a partition: the side with the majority goes on",
)
