"""Which worker a key belongs to, by rendezvous hashing: pure, the same on every machine, in every run.

Each worker has a score for each key, and the highest has it. So when a worker joins, it takes from each of the others its
share and nothing else moves; when one leaves, only its own keys move.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b

from ...claim import valid_name
from ...errors import Misuse

MAX_PARTITIONS = 4096
_REMEMBERED = 65536  # keys whose owner is kept; then all are forgotten, and asked for anew


class _Owners(dict[str, str]):
    """Owners by key. What is known costs one look into a dict, and no call of ours."""

    def __init__(self, workers: tuple[str, ...]) -> None:
        super().__init__()
        self._seeds = [(blake2b(worker.encode() + b"\0", digest_size=8), worker) for worker in workers]

    def __missing__(self, key: str) -> str:
        data = valid_name(key, "key").encode()
        best, owner = b"", ""
        for seed, worker in self._seeds:
            score = seed.copy()
            score.update(data)
            if (found := score.digest()) > best:  # equal scores: the first by name, as the workers are sorted
                best, owner = found, worker
        if len(self) >= _REMEMBERED:
            self.clear()
        self[key] = owner
        return owner


class Ring:
    """The workers, and who of them owns a key: `ring.owner("customer:42")`."""

    owner: Callable[[str], str]

    def __init__(self, workers: Iterable[str]) -> None:
        self.workers = tuple(sorted({valid_name(worker, "worker's name") for worker in workers}))
        if not self.workers:
            raise Misuse("there are no workers: nobody could own a key")
        self.owner = _Owners(self.workers).__getitem__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ring) and self.workers == other.workers

    def __hash__(self) -> int:
        return hash(self.workers)

    def __repr__(self) -> str:
        return f"Ring({list(self.workers)!r})"


def valid_partitions(count: object) -> int:
    if type(count) is not int or not 1 <= count <= MAX_PARTITIONS:
        raise Misuse(f"partitions must be an int from 1 to {MAX_PARTITIONS}, not {count!r:.80}")
    return count


def partition_of(key: str, partitions: int) -> int:
    """The partition of a key: for ever, so the number of partitions is chosen once."""
    return int.from_bytes(blake2b(valid_name(key, "key").encode(), digest_size=8).digest(), "big") % partitions
