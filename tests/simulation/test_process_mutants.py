"""Forks and signals in the simulation can fail: each of these mistakes is found, by the plans that any seed draws."""

from __future__ import annotations

import pytest

from holdfast.engine import Engine
from holdfast.stores.consul.claiming import Claiming
from holdfast.stores.consul.store import ConsulStore
from holdfast.stores.consul.wire import Wire as ConsulWire
from holdfast.stores.kit.pool import Pool
from holdfast.stores.redis.shared_wire import SharedWire
from holdfast.stores.redis.stream_pipe import StreamPipe
from holdfast.testing.simulation.swarm import CONSUL, ETCD, REDIS

from .spoiling import Mutant, check_that_it_is_found

CUT_SHORT = """\
    except BaseException as error:
        whole |= type(error).__name__ in ('Raised', 'Interrupt')
        raise
"""
TAKEN_BACK = "    finally:\n        self.pool.take_back"
LEASES = "lease._end(LOST, "
INTERRUPTED = "    except BaseException as error:\n        if claim.holder not in self._under_way:"

MUTANTS = [
    Mutant("a child keeps its parent's leases", "memory", 0, ("fork",), Engine, "forked", LEASES, "str("),
    Mutant("a child goes on renewing", REDIS, 148, ("fork",), Engine, "_made_anew", "self._start()", "pass"),
    Mutant(
        "a child talks on its parent's connection",
        REDIS,
        0,
        ("fork", "honesty", "linearizability", "tokens", "failure"),
        SharedWire,
        "forked",
        "self._shared = self._renewing = None",
        "return",
    ),
    Mutant(
        "a child closes its parent's connection",
        REDIS,
        0,
        ("fork",),
        StreamPipe,
        "disown",
        "_stream.disown",
        "_stream.close",
    ),
    Mutant(
        "a child closes its parent's connections",
        CONSUL,
        0,
        ("fork",),
        Pool,
        "forked",
        "stream.disown()",
        "stream.close()",
    ),
    Mutant(
        "a child closes its parent's connections",
        ETCD,
        0,
        ("fork",),
        Pool,
        "forked",
        "stream.disown()",
        "stream.close()",
    ),
    Mutant(
        "a child does not let go of its parent's connections",
        CONSUL,
        0,
        ("fork",),
        ConsulStore,
        "forked",
        "self.wire.pool.forked()",
        "pass",
    ),
    Mutant(
        "a child does not let go of its parent's connections",
        ETCD,
        0,
        ("fork",),
        Pool,
        "forked",
        "one.stream.disown()",
        "pass",
    ),
    Mutant(
        "a conversation that a signal cut short is taken for a whole one",
        CONSUL,
        44,
        ("wire",),
        ConsulWire,
        "ask",
        TAKEN_BACK,
        CUT_SHORT + TAKEN_BACK,
    ),
    Mutant(
        "a claim that a signal interrupts is left to its ttl",
        "memory",
        0,
        ("withdrawal",),
        Engine,
        "acquire",
        INTERRUPTED,
        INTERRUPTED.replace("if claim", "if type(error).__name__ in ('Raised', 'Interrupt') or claim"),
    ),
    Mutant(
        "what was asked for under another session, and not answered, is nobody's",
        CONSUL,
        3344,
        ("linearizability",),
        Claiming,
        "run",
        "(mine.session, *mine.moving)",
        "(mine.session,)",
    ),
]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_what_is_wrong_is_found_out(mutant: Mutant) -> None:
    check_that_it_is_found(mutant)
