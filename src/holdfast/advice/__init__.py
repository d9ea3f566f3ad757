"""Do you need a lock? Questions, what each answer means, and where they lead: data, and what draws it."""

from .tree import LEAVES, NODES, QUESTIONS, ROOT, STORES, Leaf, Node, Question, Step, missing, sample, walk

__all__ = [
    "LEAVES",
    "NODES",
    "QUESTIONS",
    "ROOT",
    "STORES",
    "Leaf",
    "Node",
    "Question",
    "Step",
    "missing",
    "sample",
    "walk",
]
