"""The tree of paths to objects: a root, then references by name and the types that they lead to.

A list of a million elements has one path: a reference to a type that is already on the path leads
back to that place. So does one from an unknown object to another.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ebpfprof.goruntime.references.object_types import UNKNOWN, ReferenceStep

MAX_PATHS: Final = 1 << 16
"""Paths beyond that are not distinguished: what lies below the others belongs to them."""
_MAX_DEPTH: Final = 48


class PathNode(NamedTuple):
    """A place in the tree: the one above it (-1 for a root), the reference, and the type there."""

    above: int
    label: str
    type: int
    depth: int


class PathTree:
    """Places by number. A root has the number of the root as its label's; its label is its name."""

    def __init__(self) -> None:
        self.nodes: list[PathNode] = []
        self._known: dict[tuple[int, str, int], int] = {}
        self._lead: dict[int, int] = {}  # a root's type of objects, of those without a label

    def root(self, name: str, type_number: int) -> int:
        """A new root."""
        self.nodes.append(PathNode(-1, name, type_number, 0))
        return len(self.nodes) - 1

    def below(self, node: int, step: ReferenceStep) -> int:
        """The place to which a reference leads from another place."""
        if step.is_part:
            return node
        key = node, step.label, step.type
        if key not in self._known:
            self._known[key] = self._below(node, step.label, step.type)
        return self._known[key]

    def _below(self, node: int, label: str, type_number: int) -> int:
        here = self.nodes[node]
        if here.above < 0 and not label and self._lead.setdefault(node, type_number) == type_number:
            return node  # what a variable itself leads to
        if type_number == UNKNOWN and (here.type == UNKNOWN and label == "?"):
            return node
        above = node
        while above >= 0 and type_number != UNKNOWN:
            if self._type_of(above) == type_number:
                return above
            above = self.nodes[above].above
        if len(self.nodes) >= MAX_PATHS or here.depth >= _MAX_DEPTH:
            return node
        self.nodes.append(PathNode(node, label, type_number, here.depth + 1))
        return len(self.nodes) - 1

    def _type_of(self, node: int) -> int:
        """The type of the objects at a place; a root's own type is the variable's."""
        here = self.nodes[node]
        return here.type if here.above >= 0 else self._lead.get(node, UNKNOWN)
