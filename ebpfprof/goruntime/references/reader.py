"""What keeps a process's objects alive, in the terms of ebpfprof.profile.references."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.references.cuts import Cuts
from ebpfprof.goruntime.references.heap import Heap
from ebpfprof.goruntime.references.heap_paths import HeapPaths
from ebpfprof.goruntime.references.object_types import UNKNOWN
from ebpfprof.goruntime.references.scan import Scan
from ebpfprof.goruntime.references.search import NO_EDGE
from ebpfprof.goruntime.references.walk import USUAL, WalkLimits
from ebpfprof.profile.references import (
    Cut,
    Example,
    LeakedGoroutines,
    Path,
    Reasons,
    References,
    RootPaths,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.goruntime.references.heap_paths import Leaked

    Numbers = npt.NDArray[np.int64]

_EXAMPLES: Final = 3
_MAX_CUTS: Final = 6  # of one example
_MAX_CHAIN: Final = 1 << 24
_SCHEDULER: Final = "runtime"


class ReferenceReader:
    """Answers questions about what keeps the objects of a process alive, when they are asked.

    The questions about single objects, types and functions are about one moment.
    """

    def __init__(self, go: GoTarget) -> None:
        self._go = go

    def references(
        self, limits: WalkLimits = USUAL, begun: Callable[[int], None] = lambda _: None
    ) -> References:
        """All paths. `begun` is called first, with how many bytes objects with pointers have.

        Raises TargetGone, UnreadableMemory or GoTableError (its code is unknown).
        """
        heap = Heap(self._go)
        begun(heap.slots.bytes_with_pointers)
        paths = HeapPaths(self._go, heap, limits)
        walk = paths.walk
        sums = walk.sums()
        objects, used = sums[0].tolist(), sums[1].tolist()
        below: list[list[Path]] = [[] for _ in objects]
        roots = []
        # A node is always made after that above it.
        for number in range(len(objects) - 1, -1, -1):
            node = walk.tree.nodes[number]
            path = Path.of(
                node.label,
                heap.types.name(node.type),
                objects[number],
                used[number],
                below[number],
            )
            if not path.total:
                continue
            if node.above >= 0:
                below[node.above].append(path)
            elif number < len(heap.roots):
                root = heap.roots[number]
                roots.append(RootPaths(str(root.kind), path, root.goroutines))
            else:
                roots.append(RootPaths(_SCHEDULER, path))
        return References(
            tuple(sorted(roots, key=lambda root: -root.paths.total)),
            sum(objects),
            sum(used),
            walk.changed,
            walk.changed_bytes,
            heap.slots.left_out,
            heap.unread_stacks,
            self._confirmed(paths.leaked),
        )

    def leaked(self) -> LeakedGoroutines:
        """The goroutines that can never continue, as a second walk confirms.

        Raises TargetGone, UnreadableMemory or GoTableError (its code is unknown).
        """
        return self._confirmed(HeapPaths(self._go, Heap(self._go)).leaked)

    def _confirmed(self, leaked: Leaked) -> LeakedGoroutines:
        if not leaked.goroutines:
            return LeakedGoroutines()
        waits = {goroutine.goid: goroutine.wait for goroutine in leaked.goroutines}
        second = HeapPaths(self._go, Heap(self._go)).leaked
        sure = [one for one in second.goroutines if waits.get(one.goid) == one.wait]
        if not sure:
            return LeakedGoroutines()
        return LeakedGoroutines(
            tuple(goroutine.goid for goroutine in sure),
            frozenset(goroutine.wait for goroutine in sure),
            second.objects,
            second.used,
        )

    @cached_property
    def scan(self) -> Scan:
        """All references, kept.

        Raises TargetGone, UnreadableMemory, GoTableError (its code is unknown) or HeapTooLarge.
        """
        return Scan(self._go)

    @cached_property
    def _reached(self) -> npt.NDArray[np.int32]:
        return np.flatnonzero(self.scan.search.node >= 0).astype(np.int32)

    @cached_property
    def _changed(self) -> npt.NDArray[np.bool_]:
        """The slots that were reached by a reference that has changed since, and all below them."""
        changed = np.zeros(self.scan.slots.count, np.bool_)
        edges = self.scan.search.edge
        edges = edges[(self.scan.search.node >= 0) & (edges >= 0) & (edges != NO_EDGE)]
        edges.sort()
        gone = edges[self.scan.graph.changed(edges)]
        level = self.scan.graph.targets[gone].astype(np.int64)
        while len(level):
            changed[level] = True
            _, below = self.scan.graph.edges_of(level)
            targets = self.scan.graph.targets[below].astype(np.int64)
            is_by_it = (self.scan.search.edge[targets] == below) & (
                self.scan.search.node[targets] >= 0
            )
            level = np.unique(targets[is_by_it & ~changed[targets]])
        return changed

    # What was asked about.

    def of_type(self, name: str) -> Numbers:
        """The slots of objects of a type, as Go code writes it: "main.session"."""
        types = self.scan.types
        wanted = [number for number in range(1, len(types)) if types.name(number) == name]
        chosen = np.isin(self.scan.search.type[self._reached], wanted)
        return self._reached[chosen].astype(np.int64)

    def of_stack(self, function: str) -> Numbers:
        """The slots of objects that Go's memory profile sampled, allocated below a function."""
        from ebpfprof.goruntime.references.allocation_sites import sampled_at

        slots = sampled_at(self._go, self.scan.slots, function)
        return slots[self.scan.search.node[slots] >= 0]

    def at(self, address: int) -> Numbers:
        """The slot that has an address, if it is reached."""
        slots, _ = self.scan.slots.find(np.array([address], np.uint64))
        slots = slots[slots >= 0]
        return slots[self.scan.search.node[slots] >= 0].astype(np.int64)

    def type_names(self) -> list[str]:
        """The names of the types of all objects."""
        types = self.scan.types
        return sorted({types.name(number) for number in range(1, len(types))} - {""})

    def reasons(self, asked: str, slots: Numbers) -> Reasons:
        """Why these slots, one at least, are alive."""
        slots = slots[~self._changed[slots]]
        freed = np.flatnonzero(self._cuts.freed_without_slots(slots)) if len(slots) else slots
        nodes, counts = np.unique(self.scan.search.node[slots], return_counts=True)
        sizes = np.bincount(self.scan.search.node[slots], self.scan.slots.bytes_of(slots))[nodes]
        order = np.argsort(-sizes, kind="stable")
        paths = tuple(
            (self._names(int(nodes[row])), int(counts[row]), int(sizes[row]))
            for row in order.tolist()
        )
        examples = []
        for row in order[:_EXAMPLES].tolist():
            members = slots[self.scan.search.node[slots] == nodes[row]]
            examples.append(self._example(int(members[len(members) // 2])))
        return Reasons(
            asked,
            len(slots),
            int(self.scan.slots.bytes_of(slots).sum()),
            len(freed),
            int(self.scan.slots.bytes_of(freed).sum()),
            paths,
            tuple(examples),
        )

    def freed_addresses(self, root: str) -> npt.NDArray[np.uint64]:
        """The addresses of what would be freed if all words of a root were nil."""
        numbers = [n for n, known in enumerate(self.scan.roots) if known.name == root]
        words = np.flatnonzero(np.isin(self.scan.words.roots, numbers))
        return self.scan.slots.addresses(np.flatnonzero(self._cuts.freed_without_words(words)))

    def reached_addresses(self) -> npt.NDArray[np.uint64]:
        """The addresses of all objects that were reached."""
        return self.scan.slots.addresses(self._reached)

    @cached_property
    def _cuts(self) -> Cuts:
        return _cuts_of(self.scan)

    def _names(self, node: int) -> tuple[str, ...]:
        names = []
        while node >= 0:
            here = self.scan.search.tree.nodes[node]
            names.append(_shown(here.label, self.scan.types.name(here.type)))
            node = here.above
        return tuple(reversed(names))

    def _example(self, slot: int) -> Example:
        """The references by which a slot is reached, and what each would free."""
        chain: list[tuple[int, int]] = []  # slot, edge
        here = slot
        for _ in range(_MAX_CHAIN):
            edge = int(self.scan.search.edge[here])
            chain.append((here, edge))
            if edge < 0 or edge == NO_EDGE:
                break
            here = int(self.scan.graph.sources(np.array([edge]))[0])
        chain.reverse()
        steps = []
        root = self._root_of(chain[0])
        if root:
            steps.append(root)
        groups: list[list[tuple[int, int]]] = []
        for link in chain:
            same = (
                groups
                and self.scan.search.node[groups[-1][-1][0]] == self.scan.search.node[link[0]]
            )
            if same:
                groups[-1].append(link)
            else:
                groups.append([link])
        for group in groups[-_MAX_CUTS:]:
            number, edge = group[-1]
            node = self.scan.search.tree.nodes[int(self.scan.search.node[number])]
            freed = self._freed_by(edge)
            steps.append(
                Cut(
                    node.label,
                    self.scan.types.name(int(self.scan.search.type[number])),
                    len(group),
                    len(freed),
                    int(self.scan.slots.bytes_of(freed).sum()),
                )
            )
        return Example(
            int(self.scan.slots.addresses(np.array([slot]))[0]),
            int(self.scan.slots.bytes_of(np.array([slot]))[0]),
            tuple(steps),
        )

    def _freed_by(self, edge: int) -> Numbers:
        if edge == NO_EDGE:
            return np.zeros(0, np.int64)
        if edge < 0:
            return np.flatnonzero(self._cuts.freed_without_words(np.array([-1 - edge])))
        return np.flatnonzero(self._cuts.freed_without_edges(np.array([edge])))

    def _root_of(self, link: tuple[int, int]) -> Cut | None:
        _, edge = link
        if edge >= 0:
            return None
        number = int(self.scan.words.roots[-1 - edge])
        root = self.scan.roots[number]
        words = np.flatnonzero(self.scan.words.roots == number)
        freed = np.flatnonzero(self._cuts.freed_without_words(words))
        kind = self.scan.root_types[number]
        return Cut(
            root.name,
            self.scan.types.name(kind) if kind != UNKNOWN else "",
            1,
            len(freed),
            int(self.scan.slots.bytes_of(freed).sum()),
        )


def _shown(label: str, type_name: str) -> str:
    return f"{label} ({type_name})" if type_name else label


def _cuts_of(scan: Scan) -> Cuts:
    words = scan.search.root_words(scan.words, scan.root_types)
    roots = np.where(words, scan.words.slots, -1).astype(np.int64)
    extra = np.concatenate([scan.scheduler, scan.kept_by_finalizers])
    # A word that is no reference stands for a slot that roots keep anyway.
    roots[roots < 0] = extra[0] if len(extra) else 0
    return Cuts(
        scan.graph,
        scan.search.are_references(),
        np.concatenate([roots, extra]),
        scan.search.node >= 0,
    )
