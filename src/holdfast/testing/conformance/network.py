"""The network of the themes of faults: `holdfast.testing.network`, which needs no pytest."""

from ..network import Catch, Network

__all__ = ["Catch", "Network"]
