"""One run: servers, proxies and workers are started, struck and healed; then all ends, is cleaned up, and is judged."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import __version__, sync
from ..errors import Misuse, Unavailable
from ..secret import Secret, redacted
from . import record
from . import register as registers
from .cleaning import clean
from .crew import Crew
from .nemesis import Nemesis
from .own import Own
from .plan import Plan, allowed, possible
from .record import Record
from .register import Place, Unanswered
from .ways import Ways

PREFIX = "holdfast-verify/"
_CONNECTING = 30.0

Show = Callable[[Crew, Nemesis, float], None]  # what is told while it runs


def run(
    url: Secret | None,
    own: str | None,
    plan: Plan,
    faults: Sequence[str] | None,
    path: Path,
    show: Show,
    register: Secret | None = None,
) -> Record:
    """What happened, written down at `path`. `faults` None: all that can be struck."""
    with ExitStack() as until_the_end:
        servers = until_the_end.enter_context(Own(own, register is None)) if own is not None else None
        url = Secret(servers.url) if servers is not None else url
        assert url is not None
        ways = until_the_end.enter_context(Ways(url.plain, plan.workers))
        can = possible(bool(ways), servers.faults if servers is not None else ())
        why_not = servers.left_out if servers is not None else {}
        plan = replace(plan, faults=allowed(faults, can, why_not))
        if plan.library is None:
            traits = _looked_at(url)
            machines = plan.workers if traits.scope == "network" else 1
            plan = replace(plan, ttl=max(plan.ttl, traits.min_ttl), machines=machines)
        folder = Path(tempfile.mkdtemp(prefix="holdfast-verify-"))
        until_the_end.callback(shutil.rmtree, folder, ignore_errors=True)
        number = os.urandom(4).hex()
        place = registers.place(None if register is None else register.plain, folder, number)
        until_the_end.callback(place.remove)  # before it is created: what was created in part goes too
        _created(place)
        return _struck(url, servers, plan, ways, place, f"{PREFIX}{number}/", folder, path, show)


def _looked_at(url: Secret) -> Any:
    with sync.connect(url, label="holdfast verify") as locks:
        if locks.traits.scope == "process":
            raise Misuse(
                "these locks are those of one process: there is nobody to verify them with. Name another store"
            )
        locks.ping()  # Unavailable now, rather than in every worker
        return locks.traits


def _created(place: Place) -> None:
    try:
        place.create()
    except Unanswered as error:
        raise Unavailable(f"the PostgreSQL of --register cannot be reached: {error}") from None


def _struck(
    url: Secret,
    servers: Own | None,
    plan: Plan,
    ways: Ways,
    place: Place,
    prefix: str,
    folder: Path,
    path: Path,
    show: Show,
) -> Record:
    register = registers.Register(place, plan.fenced)
    started = time.monotonic()
    crew = Crew(plan, ways.urls, place, prefix, folder)
    nemesis = Nemesis(plan, crew, ways, servers, register, lambda: show(crew, nemesis, started))
    wrong: list[str] = []
    try:
        for _ in range(plan.workers):
            crew.start()
        _until(lambda: all(worker.last_granted for worker in crew.workers), _CONNECTING, crew)
        begun = time.monotonic()
        nemesis.run()
        healed = nemesis.heal()
        _until(lambda: all(worker.last_granted > healed for worker in crew.living), plan.bound, crew)
        wrong += crew.stop()
    except BaseException:
        register.close()
        raise
    finally:
        crew.end()
        ways.heal()
        left = clean(url, prefix, 2 * plan.ttl + 10) if plan.library is None else []  # those end with their servers
    told = about(url, servers, plan, begun, healed, [*wrong, *left])
    told["register"] = redacted(place.where) if place.schema else "a file"
    journals = [worker.journal for worker in crew.workers if worker.journal.exists()]
    record.write(path, told, [*crew.notes, *nemesis.notes], journals, register.kept, folder)
    register.close()
    return record.Record(path)


def _until(condition: Callable[[], bool], seconds: float, crew: Crew) -> None:
    """Look for so long; what has not come by then is for the checkers to find."""
    end = time.monotonic() + seconds
    crew.follow()
    while not condition() and time.monotonic() < end and crew.living:
        time.sleep(0.02)
        crew.follow()


def about(
    url: Secret, servers: Own | None, plan: Plan, begun: float, healed: float, wrong: list[str]
) -> dict[str, Any]:
    return {
        "store": redacted(url.plain),
        "own": servers.kind if servers is not None else None,
        "seconds": plan.seconds,
        "seed": plan.seed,
        "workers": plan.workers,
        "lanes": plan.lanes,
        "library": plan.library,
        "ttl": plan.ttl,
        "fenced": plan.fenced,
        "allowed": list(plan.faults),
        "left out": servers.left_out if servers is not None else {},
        "bound": plan.bound,
        "begun": begun,
        "healed": healed,
        "ended": time.monotonic(),
        "wrong": wrong,
        "environment": {
            "holdfast": __version__,
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.release()}",
            "cpus": os.cpu_count() or 0,
            "load": round(os.getloadavg()[0], 1),
        },
    }
