"""A suite that every store passes, in threads and in asyncio. For authors of stores, inside and outside of holdfast.

    # test_my_store.py
    import pytest
    from holdfast.testing.conformance import Suite

    class TestMyStore(Suite):
        @pytest.fixture
        def url(self, tmp_path):
            return f"mystore://{tmp_path}"        # a fresh space for every test

That is all: pytest collects the class and finds the store by its URL, as a user would. Set `ttl_short` if the store has a
minimum ttl, `slack` if it is slow, `tells_ttl = False` if it cannot say when a holder last renewed, and `doubts = False` if it
has but one connection. What a store says in its traits (not fair, no bell, one process only) is taken into account; everything
else is asked of all.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

_THEMES = (
    "abandonment answers bounds claims closing crumbs cuts deaths elections eviction exclusion forks interruption "
    "isolation keeping leaving lines looking loops misuse names oneself once order pauses processes readers reentrancy "
    "secrecy semaphores several sharing silence staying tokens unconfirmed world"
)
pytest.register_assert_rewrite(*(f"{__name__}.{theme}" for theme in _THEMES.split()))

from ..network import Network  # noqa: E402
from .abandonment import Abandonment  # noqa: E402 - their asserts are rewritten only if this comes after
from .answers import LostAnswers  # noqa: E402
from .bounds import Bounds  # noqa: E402
from .claims import Claims  # noqa: E402
from .closing import Closing  # noqa: E402
from .crumbs import Crumbs  # noqa: E402
from .cuts import Cuts  # noqa: E402
from .deaths import Deaths  # noqa: E402
from .elections import Elections  # noqa: E402
from .eviction import Evictions  # noqa: E402
from .exclusion import Exclusion  # noqa: E402
from .forks import Forks  # noqa: E402
from .interruption import Interruptions  # noqa: E402
from .isolation import Isolation  # noqa: E402
from .keeping import Keeping  # noqa: E402
from .leaving import Leaving  # noqa: E402
from .lines import Lines  # noqa: E402
from .looking import Looking  # noqa: E402
from .loops import Loops  # noqa: E402
from .misuse import Misuses  # noqa: E402
from .names import Names  # noqa: E402
from .once import Once  # noqa: E402
from .oneself import Oneself  # noqa: E402
from .order import Order  # noqa: E402
from .pauses import Pauses  # noqa: E402
from .processes import Processes  # noqa: E402
from .readers import Readers  # noqa: E402
from .reentrancy import Reentrancy  # noqa: E402
from .secrecy import Secrecy  # noqa: E402
from .semaphores import Semaphores  # noqa: E402
from .several import Several  # noqa: E402
from .sharing import Sharing  # noqa: E402
from .silence import Silence  # noqa: E402
from .staying import Staying  # noqa: E402
from .tampering import Tampered, tamper  # noqa: E402
from .tokens import Tokens  # noqa: E402
from .unconfirmed import Unconfirmed  # noqa: E402
from .world import Actor, World, claim, inside, settled  # noqa: E402

__all__ = ["Suite", "World", "Network", "Actor", "Tampered", "tamper", "claim", "inside", "settled"]


class Suite(
    Exclusion,
    Order,
    Tokens,
    Claims,
    Deaths,
    Pauses,
    Interruptions,
    Leaving,
    Keeping,
    Semaphores,
    Readers,
    Reentrancy,
    Several,
    Elections,
    Once,
    Evictions,
    Looking,
    Names,
    Misuses,
    Secrecy,
    Processes,
    Forks,
    LostAnswers,
    Silence,
    Crumbs,
    Cuts,
    Bounds,
    Closing,
    Abandonment,
    Lines,
    Isolation,
    Loops,
    Oneself,
    Staying,
    Sharing,
    Unconfirmed,
):
    """Subclass it as `Test…` and give it a `url` fixture."""

    ttl_short = 0.3  # a ttl that is waited out; raised to the store's min_ttl
    slack = 2.0  # how late, in seconds, what should happen at once may happen on a busy machine

    @pytest.fixture
    def url(self) -> str:
        """Of a fresh space, for one test."""
        raise NotImplementedError("a conformance suite needs a fixture `url`: see holdfast.testing.conformance")

    @pytest.fixture
    def network(self, url: str) -> Iterator[Network]:
        """A proxy before each server that the URL names (`host:port`), or nothing at all, if it names none."""
        with Network(url) as network:
            yield network

    @pytest.fixture(params=["threads", "asyncio"])
    def world(self, request: pytest.FixtureRequest, url: str) -> Iterator[World]:
        if "network" in request.fixturenames:
            request.getfixturevalue("network")  # so that it is there until everybody has said goodbye
        stage = World(url, request.param, self.ttl_short, self.slack)
        yield stage
        stage.end()
