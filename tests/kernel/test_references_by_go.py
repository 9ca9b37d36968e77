"""References and what they keep, compared with Go's own dump of the same heap."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ebpfprof.goruntime.references.reader import ReferenceReader
from ebpfprof.goruntime.references.scan import Scan
from ebpfprof.process.process import Target as Process
from tests.builds import NEWEST, versions
from tests.images.readers import opened
from tests.kernel.heap_dump import HeapDump, heap_dump
from tests.kernel.test_references import WAYS, running

VARIABLES = {name: way.root for name, way in WAYS.items() if way.root.startswith("main.")}
BYTES = {"drawn": 16}
"""The sizes of variables that are not one word; of a slice, only the first word is a pointer."""
KEPT_BY_STACKS = 2
"""Objects to which a dead variable on a stack refers: Go knows that it is dead."""
Pairs = set[tuple[int, int]]


def references(scan: Scan) -> Pairs:
    """The addresses of all objects that are reached, with those to which they refer."""
    reached = np.flatnonzero(scan.search.node >= 0)
    which, edges = scan.graph.edges_of(reached)
    are = scan.search.are_references()[edges]
    sources = scan.slots.addresses(reached[which[are]])
    targets = scan.slots.addresses(scan.graph.targets[edges[are]])
    return set(zip(sources.tolist(), targets.tolist(), strict=True))


def references_by_go(dump: HeapDump) -> Pairs:
    """The same; as there, without references of an object to itself."""
    starts = dump.starts.tolist()
    return {(starts[source], starts[to]) for source, to in dump.edges.tolist() if source != to}


@pytest.mark.parametrize("version", versions("1.19", "1.21", "1.22", "1.24", "1.26", NEWEST))
def test_the_same_references_keep_the_same_objects(version: str, tmp_path: Path) -> None:
    check_references(version, "plain", tmp_path)


def check_references(version: str, mode: str, folder: Path) -> None:
    with running(version, mode) as target:
        target.ask(f"dump {folder / 'heap'}", "done")
        with opened(Process(target.pid)) as go:
            found = ReferenceReader(go)
            ours = references(found.scan)
            freed = {
                name: set(found.freed_addresses(root).tolist()) for name, root in VARIABLES.items()
            }
            places = {root.name: root.address + go.load_bias for root in found.scan.roots}
    dump = heap_dump(folder / "heap")
    for name, root in VARIABLES.items():
        freed_by_go = dump.freed_without(places[root], places[root] + BYTES.get(name, 8))
        assert freed[name] <= freed_by_go, name
        assert len(freed_by_go - freed[name]) <= KEPT_BY_STACKS, name
    kept = set().union(*freed.values())
    of_kept, of_kept_by_go = (
        {pair for pair in pairs if pair[0] in kept} for pairs in (ours, references_by_go(dump))
    )
    assert of_kept == of_kept_by_go
    assert len(of_kept) > 50_000
