"""Redlock's rules with three clients on three nodes, over every order of events; see test_model.py for what must hold.

Covered, without a bound on depth or on the number of faults: each client makes one attempt with one proposal, its requests
reach each node at any time or never, each answer arrives or is lost, what a node let in runs out there at any time, and a
client gives up, or leaves, whenever it likes. With two clients, whoever is granted may renew once as well: that request, too,
reaches each node at any time or never, and its answers count only while the client is valid. What it prolonged does not run out
before the validity that is counted from it. Not covered here: a second proposal by the same client, and nodes that forget.

The space is the same as test_model's, folded where nothing can tell the difference:

* Nodes are alike, so their order does not matter; nor does which of them gave an answer, but how many said yes, and the
  highest token that was told.
* A release that reaches a node where its client is not inside does nothing, and one that reaches its client's entry does what
  running out does, since nobody asks any more how long a client that has left was valid. So no release is sent: an entry of a
  client that has left may vanish at any time, and a request that is still on its way may arrive at any time.
* What an attempt was answered is forgotten once it is granted, has left, or is too late to be granted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from holdfast import rule
from holdfast.stores.redlock import quorum

from .test_model import CLOCK, NODES, SOUND, Rules, Violation

FRESH, ASKING, GRANTED, LEFT, RENEWING, RENEWED = range(6)
HOLDING = (GRANTED, RENEWING, RENEWED)
NOBODY = -1


class Node(NamedTuple):
    mark: int = 0
    inside: int = NOBODY
    asked: int = 0  # bit by bit: whose request is on its way
    renewing: int = 0  # and whose renewal
    renewed: bool = False


class Client(NamedTuple):
    phase: int = FRESH
    yes: int = 0
    told: int = 0
    late: bool = False
    later: bool = False  # what its renewal had prolonged has run out


World = tuple[tuple[Node, ...], tuple[Client, ...], int]  # nodes in order, clients, the last token granted


def steps(world: World, tokens: tuple[int, ...], rules: Rules, renews: bool) -> Iterator[World]:
    nodes, clients, last = world
    for who, client in enumerate(clients):
        if client.phase == FRESH:
            asked = [node._replace(asked=node.asked | 1 << who) for node in nodes]
            yield tuple(sorted(asked)), _with(clients, who, Client(ASKING)), last
        elif client.phase != LEFT:
            yield nodes, _with(clients, who, Client(LEFT)), last
            if client.phase == ASKING and _is_granted(client, tokens[who], rules):
                _check(who, clients, tokens[who], last)
                yield nodes, _with(clients, who, Client(GRANTED, late=client.late)), tokens[who]
            if renews and client.phase == GRANTED and not client.late:
                asked = [node._replace(renewing=node.renewing | 1 << who) for node in nodes]
                yield tuple(sorted(asked)), _with(clients, who, Client(RENEWING)), last
            if client.phase == RENEWING and rules.kept(client.yes) and not (client.late and rules.validity_checked):
                _check_alone(who, clients)
                yield nodes, _with(clients, who, Client(RENEWED, late=client.later)), last
    for at, node in enumerate(nodes):
        if at and node == nodes[at - 1]:
            continue  # the same would happen
        if node.inside != NOBODY:
            late = client = clients[node.inside]
            if client.phase != LEFT and (node.renewed or client.phase != RENEWED):
                late = _too_late(client, rules)._replace(later=client.later or node.renewed)
            free = node._replace(inside=NOBODY, renewed=False)
            yield _sorted(nodes, at, free), _with(clients, node.inside, late), last
        for who, token in enumerate(tokens):
            if node.asked >> who & 1:
                yield from _delivered(world, at, who, token, rules)
            if node.renewing >> who & 1:
                yield from _renewed(world, at, who, rules)


def _delivered(world: World, at: int, who: int, token: int, rules: Rules) -> Iterator[World]:
    nodes, clients, last = world
    node, client = nodes[at], clients[who]
    asked = node.asked & ~(1 << who)
    if node.inside == NOBODY and rules.accepts(token, node.mark):
        after = Node(token, who, asked, node.renewing)
        heard = client._replace(yes=client.yes + 1)
    else:
        after = node._replace(asked=asked)
        heard = client._replace(told=max(client.told, node.mark))
    changed = _sorted(nodes, at, after)
    yield changed, clients, last  # and the answer is lost
    if client.phase == ASKING and not (client.late and rules.validity_checked):
        yield changed, _with(clients, who, heard), last


def _renewed(world: World, at: int, who: int, rules: Rules) -> Iterator[World]:
    nodes, clients, last = world
    node, client = nodes[at], clients[who]
    after = node._replace(renewing=node.renewing & ~(1 << who))
    there = node.inside == who
    if there:
        after = after._replace(renewed=True)
    changed = _sorted(nodes, at, after)
    yield changed, clients, last  # and the answer is lost
    if there and client.phase == RENEWING and not (client.late and rules.validity_checked):
        yield changed, _with(clients, who, client._replace(yes=client.yes + 1)), last


def _is_granted(client: Client, token: int, rules: Rules) -> bool:
    counted = quorum.Tally(client.yes, 0, 0, NODES - client.yes, client.told, 0, 0, agreed=0)
    return rules.granted(counted, token) and not (client.late and rules.validity_checked)


def _too_late(client: Client, rules: Rules) -> Client:
    forget = client.phase in (GRANTED, RENEWED) or rules.validity_checked
    return Client(client.phase, late=True) if forget else client._replace(late=True)


def _check(who: int, clients: tuple[Client, ...], token: int, last: int) -> None:
    if token <= last:
        raise Violation(f"token {token} granted after {last}")
    _check_alone(who, clients)


def _check_alone(who: int, clients: tuple[Client, ...]) -> None:
    if not clients[who].late and any(
        other.phase in HOLDING and not other.late for at, other in enumerate(clients) if at != who
    ):
        raise Violation("two grants are valid at once")


def _with(clients: tuple[Client, ...], who: int, client: Client) -> tuple[Client, ...]:
    return (*clients[:who], client, *clients[who + 1 :])


def _sorted(nodes: tuple[Node, ...], at: int, node: Node) -> tuple[Node, ...]:
    return tuple(sorted((*nodes[:at], node, *nodes[at + 1 :])))


def explore(clients: int, rules: Rules = SOUND, *, renews: bool = False) -> int:
    tokens = tuple(rule.next_token(0, CLOCK + who * rules.apart, "x") for who in range(clients))
    start: World = ((Node(),) * NODES, (Client(),) * clients, 0)
    seen, stack = {start}, [start]
    while stack:
        for world in steps(stack.pop(), tokens, rules, renews):
            if world not in seen:
                seen.add(world)
                stack.append(world)
    return len(seen)


@pytest.mark.timeout(400)  # much work for a busy machine
def test_three_clients_in_every_order() -> None:
    assert explore(3) == 249_048


@pytest.mark.timeout(400)
def test_two_clients_who_renew_in_every_order() -> None:
    """Late, on some nodes only, unanswered, or when somebody else is inside there."""
    assert explore(2, renews=True) == 43_511


@pytest.mark.parametrize(
    "mistake",
    [Rules(kept=lambda yes: yes > 0), Rules(validity_checked=False)],
    ids=["one node is enough", "answered too late"],
)
def test_a_mistake_in_a_renewal_is_found(mistake: Rules) -> None:
    with pytest.raises(Violation):
        explore(2, mistake, renews=True)


MISTAKES = {
    "equal tokens accepted": Rules(accepts=lambda token, mark: token >= mark, apart=0),
    "any token accepted": Rules(accepts=lambda token, mark: True),
    "no majority": Rules(granted=lambda counted, token: counted.yes >= 1),
    "validity not checked again": Rules(validity_checked=False),
}


@pytest.mark.parametrize("clients", [2, 3])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_rules_is_found_in_the_folded_space_too(clients: int, mistake: str) -> None:
    with pytest.raises(Violation):
        explore(clients, MISTAKES[mistake])
