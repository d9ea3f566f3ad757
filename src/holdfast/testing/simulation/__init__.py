"""The real engine, recipes and stores, run by seed in a world that fails: pauses, crashes, lost and late messages.

>>> from holdfast.testing.simulation import run
>>> print(run(seed=7))
seed 7: all well, ...
"""

from __future__ import annotations

from .chaos import NO_TROUBLE, TROUBLE, Trouble
from .client import Client
from .local import Local
from .network import CALM, ROUGH, Faults, Network, Scripted
from .register import Fence, Register, RegisterClient
from .remote import Remote
from .workload import Plan, Report, Workload, behind_network, memory_behind_network, run

__all__ = [
    "run",
    "Plan",
    "Report",
    "Workload",
    "behind_network",
    "memory_behind_network",
    "Trouble",
    "TROUBLE",
    "NO_TROUBLE",
    "Client",
    "Network",
    "Faults",
    "CALM",
    "ROUGH",
    "Scripted",
    "Remote",
    "Local",
    "Fence",
    "Register",
    "RegisterClient",
]
