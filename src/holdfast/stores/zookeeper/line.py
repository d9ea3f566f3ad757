"""Who is inside and who waits, from the names of nodes alone. Pure: no clock, no I/O.

A claim is a node whose name says all that the decision needs, so that one listing is enough:

    <tag>.<units>.<capacity>.<f|u>.<sequence>    a claim; fair or unfair; ZooKeeper appends the sequence
    <tag>~<units>                                it keeps only so many units: a writer that became a reader
    <tag>!                                       it went in past the line, which only an unfair claim may

The tag is a hash of the holder, which never leaves its process, and of the session. The rule: whoever went past the line is
inside; the others stand in the order of their sequence, and are inside while all before them are and the sum of their
units fits. Nodes are only ever added at the end, so who is inside stays inside, and a listing that lags behind errs on
the safe side: it shows more before us, never less.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple
from urllib.parse import quote, unquote

from ... import rule
from ...claim import Claim

_HALF = 2**31
_DIGITS = 10  # of a number that we write
_SHORT = 8
_PLAIN, _TAG = ".1.1.", 32
_PLAIN_END = _TAG + len(_PLAIN)
_SEQUENCE = _PLAIN_END + len("f.")


def encode(name: str) -> str:
    """Any name as one part of a path: injective, and never `.`, `..` or empty."""
    return quote(name, safe="").replace(".", "%2E")


def parent(root: str, name: str) -> str:
    """The node whose children are the claims of a name."""
    return f"{root}/locks/{encode(name)}"


def decode(part: str) -> str | None:
    """None: that is none of our names."""
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError:
        return None


def tag_of(holder: str, session: int | None) -> str:
    """Of one holder in one session: what a session that is dying left behind is not taken for ours."""
    return blake2b(f"{holder} {session}".encode(), digest_size=16).hexdigest()


class Node(NamedTuple):
    """A claim, as its name tells it."""

    name: str
    tag: str
    units: int
    capacity: int
    fair: bool
    sequence: int
    past_line: bool = False


def stem(claim: Claim, tag: str) -> str:
    """The name of a claim's node, as far as we choose it."""
    return f"{tag}.{claim.units}.{claim.capacity}.{'f' if claim.fair else 'u'}."


def read(children: Iterable[str]) -> list[Node]:
    """The claims, first come first. What is not ours is passed over."""
    nodes: list[Node] = []
    kept: dict[str, int] = {}
    passed: set[str] = set()
    for child in children:
        parts = child.split(".")
        if len(parts) == 5:
            try:
                node = Node(child, parts[0], int(parts[1]), int(parts[2]), parts[3] == "f", int(parts[4]))
            except ValueError:
                continue
            if 0 < node.units <= node.capacity:
                nodes.append(node)
        elif child.endswith("!"):
            passed.add(child[:-1])
        elif "~" in child:
            tag, _, units = child.partition("~")
            if units.isascii() and units.isdigit() and len(units) <= _DIGITS:
                kept[tag] = min(int(units), kept.get(tag, _HALF))
    if kept or passed:
        nodes = [
            node._replace(units=min(node.units, kept.get(node.tag, node.units)), past_line=node.tag in passed)
            for node in nodes
        ]
    return in_order(nodes)


def deciding(children: Sequence[str], tag: str, capacity: int) -> Sequence[str]:
    """Of a mutex's long line, those that decide about this claim: the first, the one right before it, itself.

    To read the names of a hundred who wait costs more than the server takes to tell them. What is not a mutex's plain claim
    is kept, whoever it is; and if anything is unusual, so is everything.
    """
    if capacity != 1 or len(children) < _SHORT:
        return children
    plain = [child for child in children if child[_TAG:_PLAIN_END] == _PLAIN]
    others = [] if len(plain) == len(children) else [child for child in children if child[_TAG:_PLAIN_END] != _PLAIN]
    mine = next((index for index, child in enumerate(plain) if child.startswith(tag)), None)
    if mine is None or any("!" in other or "~" in other for other in others):
        return children
    try:
        pivot = int(plain[0][_SEQUENCE:]) - _HALF
        order = [(int(child[_SEQUENCE:]) - pivot) % (2 * _HALF) for child in plain]
    except ValueError:
        return children
    place = order[mine]
    first = order.index(min(order))
    ahead = max((one for one in order if one < place), default=place)
    return [*others, *(plain[index] for index in {first, order.index(ahead), mine})]


def in_order(nodes: list[Node]) -> list[Node]:
    """By sequence, which is 32 bits with a sign and wraps: what matters is the distance, not the number."""
    if len(nodes) > 1:
        pivot = nodes[0].sequence
        nodes.sort(key=lambda node: (node.sequence - pivot + _HALF) % (2 * _HALF))
    return nodes


class Standing(NamedTuple):
    """Where one claim stands."""

    inside: bool
    room: bool  # there is room for it, whoever waits ahead
    ahead: Node | None  # the node right before ours in the line
    head: bool  # first of those who wait
    guards: tuple[Node, ...]  # while these exist, nobody can come in without going past the line too


def standing(nodes: Sequence[Node], tag: str) -> Standing | None:
    """Of the claim with this tag; None: it is not there."""
    mine = next((node for node in nodes if node.tag == tag), None)
    if mine is None:
        return None
    used = sum(node.units for node in nodes if node.past_line)
    guards = [node for node in nodes if node.past_line and node.tag != tag]
    ahead: Node | None = None
    blocked: Node | None = None
    for node in nodes:
        if node.tag == tag:
            break
        if not node.past_line:
            ahead = node
        if node.past_line or node.capacity != mine.capacity:  # another capacity is about to be refused
            continue
        if blocked is None:
            guards.append(node)
            if rule.admit(node.units, node.capacity, used, ahead=False):
                used += node.units
            else:
                blocked = node
    if mine.past_line:
        return Standing(True, True, ahead, False, ())
    room = rule.admit(mine.units, mine.capacity, used, ahead=False)
    inside = rule.admit(mine.units, mine.capacity, used, ahead=blocked is not None)
    return Standing(inside, room, ahead, blocked is None, tuple(guards))


def check_capacity(name: str, nodes: Sequence[Node], tag: str) -> None:
    """On joining: the first of a name says what kind of lock it is; and whoever comes with another kind at once, leaves."""
    mine = next(node for node in nodes if node.tag == tag)
    if nodes[0] is mine:
        for node in nodes:
            rule.same_capacity(name, mine.capacity, node.capacity)
    rule.same_capacity(name, mine.capacity, nodes[0].capacity)


def entitled(nodes: Sequence[Node]) -> set[str]:
    """The tags of those who may be inside: those who went past the line, and as many from its front as there is room for."""
    inside = {node.tag for node in nodes if node.past_line}
    used = sum(node.units for node in nodes if node.past_line)
    for node in nodes:
        if node.past_line or node.capacity != nodes[0].capacity:
            continue
        if not rule.admit(node.units, node.capacity, used, ahead=False):
            break
        used += node.units
        inside.add(node.tag)
    return inside
