"""Redlock's rules, over every order of events that a small world allows: clients, three nodes, expiry, lost replies.

The decisions are those of `holdfast.stores.redlock.quorum`, which the store itself uses; a node is four lines that say what
its script does. Clocks are as bad as can be: each client always proposes the same number, or one above what it was told,
so that whoever comes late may well propose less than what was granted before. Two things must
hold in every state that can be reached:

* tokens rise from grant to grant, and
* no two grants are valid at once.

Of time only this is assumed: what a node let in before our request was answered does not run out there before our own
validity has (which is counted from before the request was sent).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from holdfast import rule
from holdfast.stores.redlock import quorum

NODES = 3
CLOCK = 10
RELEASE = 0  # a message that is no token


class Node(NamedTuple):
    mark: int = 0
    inside: int = -1  # a client; -1: nobody
    token: int = 0


class Client(NamedTuple):
    token: int = 0  # proposed; 0: has not started
    told: int = 0
    attempts: int = 0
    answers: tuple[Any, ...] = (None,) * NODES
    queues: tuple[tuple[int, ...], ...] = ((),) * NODES  # on their way to each node, in order
    late: bool = False  # an acceptance has run out: so has the validity
    granted: bool = False
    over: bool = False


class World(NamedTuple):
    nodes: tuple[Node, ...]
    clients: tuple[Client, ...]
    last_granted: int = 0


class Rules(NamedTuple):
    """What may be replaced by a mistake, to see that the search finds it."""

    accepts: Callable[[int, int], bool] = lambda token, mark: token > mark
    granted: Callable[[quorum.Tally, int], bool] = lambda counted, token: counted.granted(NODES, token)
    validity_checked: bool = True
    apart: int = 1  # how far the clients' clocks are from each other
    forgets: bool = False  # may a node restart with nothing?
    kept: Callable[[int], bool] = lambda yes: quorum.present([1] * yes + [None] * (NODES - yes), NODES) is True


SOUND = Rules()


class Violation(AssertionError):
    pass


def put(items: tuple[Any, ...], at: int, item: Any) -> tuple[Any, ...]:
    return (*items[:at], item, *items[at + 1 :])


def steps(world: World, rules: Rules, attempts: int) -> Iterator[World]:
    for who, client in enumerate(world.clients):
        if client.token == 0:
            yield _proposed(world, who, client, rules)
        elif not client.over:
            yield from _decisions(world, who, client, rules, attempts)
        for at in range(NODES):
            if client.queues[at]:
                yield from _delivered(world, who, client, at, rules)
    for at, node in enumerate(world.nodes):
        if node.inside >= 0:
            yield _expired(world, at, node)
            if rules.forgets:
                yield world._replace(nodes=put(world.nodes, at, Node()))


def _proposed(world: World, who: int, client: Client, rules: Rules) -> World:
    token = rule.next_token(client.told, CLOCK + who * rules.apart, "x")
    queues = tuple((*queue, token) for queue in client.queues)
    fresh = client._replace(
        token=token, attempts=client.attempts + 1, queues=queues, answers=(None,) * NODES, late=False
    )
    return world._replace(clients=put(world.clients, who, fresh))


def _decisions(world: World, who: int, client: Client, rules: Rules, attempts: int) -> Iterator[World]:
    leaving = client._replace(
        over=True, granted=False, answers=(None,) * NODES, queues=tuple((*queue, RELEASE) for queue in client.queues)
    )
    if client.granted:
        yield world._replace(clients=put(world.clients, who, leaving))
        return
    counted = quorum.tally(client.answers)
    if rules.granted(counted, client.token) and not (client.late and rules.validity_checked):
        if client.token <= world.last_granted:
            raise Violation(f"token {client.token} granted after {world.last_granted}")
        if any(other.granted and not other.late for other in world.clients) and not client.late:
            raise Violation("two grants are valid at once")
        yield world._replace(clients=put(world.clients, who, client._replace(granted=True)), last_granted=client.token)
    told = max(client.told, counted.highest)
    if counted.worth_raising(NODES) and client.attempts < attempts:
        yield _proposed(world, who, client._replace(told=told), rules)
    yield world._replace(clients=put(world.clients, who, leaving))


def _delivered(world: World, who: int, client: Client, at: int, rules: Rules) -> Iterator[World]:
    """A node works on the next message; its answer arrives, or is lost."""
    node = world.nodes[at]
    message, rest = client.queues[at][0], client.queues[at][1:]
    waiting = client._replace(queues=put(client.queues, at, rest))
    answer: Any
    if message == RELEASE:
        if node.inside == who:
            node = node._replace(inside=-1, token=0)
        yield World(put(world.nodes, at, node), put(world.clients, who, waiting), world.last_granted)
        return
    if node.inside not in (-1, who):
        answer = [0, 1, node.mark]
    elif node.inside == who and node.token == message:
        answer = message
    elif rules.accepts(message, node.mark):
        node, answer = Node(message, who, message), message
    else:
        answer = [2, node.mark]
    nodes = put(world.nodes, at, node)
    yield World(nodes, put(world.clients, who, waiting), world.last_granted)  # the answer is lost
    if message == client.token and not client.over:
        heard = waiting._replace(answers=put(client.answers, at, answer))
        yield World(nodes, put(world.clients, who, heard), world.last_granted)


def _expired(world: World, at: int, node: Node) -> World:
    owner = world.clients[node.inside]
    clients = world.clients if owner.over else put(world.clients, node.inside, owner._replace(late=True))
    return world._replace(nodes=put(world.nodes, at, node._replace(inside=-1, token=0)), clients=clients)


def explore(clients: int, attempts: int, rules: Rules = SOUND, most: int = 3_000_000) -> int:
    start = World((Node(),) * NODES, (Client(),) * clients)
    seen = {start}
    stack = [start]
    while stack:
        for world in steps(stack.pop(), rules, attempts):
            world = _canonical(world)
            if world not in seen:
                seen.add(world)
                stack.append(world)
                assert len(seen) <= most
    return len(seen)


def _canonical(world: World) -> World:
    """Nodes are alike: of worlds that differ only in their order, one is enough."""
    columns: list[tuple[Any, ...]] = sorted(
        (
            (node, *((_plain(client.answers[at]), client.queues[at]) for client in world.clients))
            for at, node in enumerate(world.nodes)
        ),
        key=repr,
    )
    clients = tuple(
        client._replace(
            answers=tuple(column[1 + who][0] for column in columns),
            queues=tuple(column[1 + who][1] for column in columns),
        )
        for who, client in enumerate(world.clients)
    )
    return world._replace(nodes=tuple(column[0] for column in columns), clients=clients)


def _plain(answer: Any) -> Any:
    return tuple(answer) if isinstance(answer, list) else answer


def test_two_clients_in_every_order() -> None:
    assert explore(2, attempts=1) > 10_000


@pytest.mark.timeout(400)  # much work for a busy machine
def test_two_clients_who_raise_their_proposals_in_every_order() -> None:
    """Each proposes, is told of a higher token by a node or two, and proposes again, above that."""
    assert explore(2, attempts=2) == 221_648


def test_a_node_that_restarts_empty_breaks_it_as_the_page_says() -> None:
    with pytest.raises(Violation):
        explore(2, attempts=1, rules=Rules(forgets=True))


@pytest.mark.parametrize(
    "mistake",
    [
        Rules(accepts=lambda token, mark: token >= mark, apart=0),
        Rules(accepts=lambda token, mark: True),
        Rules(granted=lambda counted, token: counted.yes >= 1),
        Rules(validity_checked=False),
    ],
    ids=["equal tokens accepted", "any token accepted", "no majority", "validity not checked again"],
)
def test_a_mistake_in_the_rules_is_found(mistake: Rules) -> None:
    with pytest.raises(Violation):
        explore(2, attempts=1, rules=mistake)
