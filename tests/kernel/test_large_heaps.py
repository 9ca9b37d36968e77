"""Heaps that are larger than what is kept of them at once: nothing is estimated, all is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from ebpfprof.goruntime.references.reader import ReferenceReader
from ebpfprof.goruntime.references.walk import USUAL, WalkLimits
from ebpfprof.process.process import Target as Process
from ebpfprof.profile.references import References
from tests.builds import in_full
from tests.images.readers import opened
from tests.kernel.acting_process import ActingProcess
from tests.kernel.programs import program
from tests.targets_run import Target

OF_A_PART = {
    "main.owner": 20,
    "main.record": 1500,
    "main.element": 2000,
    "[4]int": 2000,
    "main.link": 2000,
    "main.branch": (1 << 11) - 1,
    "main.row": 4,
    "main.cell": 400,
}
"""The objects of each type that `fill 1` adds."""
CHURNED = 100
"""Records that `churn` replaces, again and again."""
PARTS = 3
MANY_PARTS = 300
OF_RUNTIME = 30
"""Objects that the runtime allocates and drops meanwhile."""


@contextmanager
def running(parts: int) -> Iterator[ReferenceReader]:
    with Target.start(program("largeheap")) as target:
        target.ask(f"fill {parts}", "done")
        target.ask("tables 1", "done")
        with opened(Process(target.pid)) as go:
            yield ReferenceReader(go)


@pytest.fixture(scope="module")
def small() -> Iterator[ReferenceReader]:
    with running(PARTS) as found:
        yield found


@pytest.fixture(scope="module")
def large() -> Iterator[ReferenceReader]:
    with running(MANY_PARTS) as found:
        yield found


def by_type(references: References) -> Counter[str]:
    counts: Counter[str] = Counter()
    for root in references.roots:
        # The objects at a root itself are those to which the variable leads.
        counts[root.paths.type.removeprefix("*")] += root.paths.objects
        for below in root.paths.below:
            for path in below.all():
                counts[path.type] += path.objects
    return counts


def assert_all_is_counted(references: References, parts: int) -> None:
    counts = by_type(references)
    expected = {kind: parts * count for kind, count in OF_A_PART.items()}
    assert {kind: counts[kind] for kind in expected} == expected
    (table,) = (r.paths for r in references.roots if r.paths.label == "main.tables")
    assert table.total >= 1 << 20
    assert references.changed == references.left_out == references.stacks_missed == 0
    assert references.used == sum(root.paths.total for root in references.roots)


@pytest.mark.parametrize(
    "limits",
    [USUAL, WalkLimits(widest=300, thin=5), *in_full(WalkLimits(widest=40, thin=5))],
    ids=str,
)
def test_all_objects_are_counted_whatever_is_kept_at_once(
    small: ReferenceReader, limits: WalkLimits
) -> None:
    assert_all_is_counted(small.references(limits), PARTS)


def test_a_walk_reaches_what_a_search_in_all_references_reaches(small: ReferenceReader) -> None:
    references = small.references()
    search, slots = small.scan.search, small.scan.slots
    reached = np.flatnonzero(search.node >= 0)
    assert abs(references.objects - len(reached)) <= OF_RUNTIME
    assert abs(references.used - int(slots.bytes_of(reached).sum())) <= OF_RUNTIME * 1024
    names = [node.label for node in search.tree.nodes]
    roots = {
        root.paths.label: root.paths.objects
        for root in references.roots
        if root.paths.label.startswith("main.")
    }
    counts = np.bincount(search.node[reached], minlength=len(names))
    assert roots == {
        name: int(count) for name, count in zip(names, counts, strict=True) if name in roots
    }


@pytest.mark.full
@pytest.mark.parametrize("seed", range(40))
def test_a_heap_far_beyond_the_limits(large: ReferenceReader, seed: int) -> None:
    """Of 190 MB, at most some thousand of four million objects are kept at once."""
    random = np.random.default_rng(seed)
    limits = WalkLimits(
        widest=int(random.integers(1000, 50_000)), thin=int(random.integers(5, 500))
    )
    assert_all_is_counted(large.references(limits), MANY_PARTS)


def references_cut_after(target: Target, reads: int) -> References:
    """The references of a target that sets pointers to nil after so many reads of the heap."""
    left = 0

    def begun(_: int) -> None:
        nonlocal left
        left = reads

    def behind(_address: int, _data: bytes) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            target.ask("cut", "done")

    with opened(ActingProcess(target.pid, behind)) as go:
        return ReferenceReader(go).references(WalkLimits(thin=0), begun)


def test_what_was_read_from_an_object_that_is_cut_off_meanwhile_belongs_to_no_path() -> None:
    """Cells are reached from rows alone, so none remains of a row that was dropped."""
    changed = []
    cells = OF_A_PART["main.cell"] // OF_A_PART["main.row"]
    with Target.start(program("largeheap")) as target:
        for reads in (4, 6, 8):  # some of which lie between reading the rows and their cells
            target.ask("fill 1", "done")
            references = references_cut_after(target, reads)
            found = by_type(references)
            assert found["main.cell"] == cells * found["main.row"]
            changed.append(references.changed)
    assert max(changed) >= OF_A_PART["main.cell"]


def test_what_changes_meanwhile_belongs_to_no_path() -> None:
    with Target.start(program("largeheap")) as target:
        target.ask(f"fill {PARTS}", "done")
        target.ask("churn", "done")
        with opened(Process(target.pid)) as go:
            references = ReferenceReader(go).references(WalkLimits(widest=300, thin=5))
    counts = by_type(references)
    most = PARTS * OF_A_PART["main.record"]
    assert most - CHURNED <= counts["main.record"] <= most
    for kind in ("main.element", "main.link", "main.cell"):
        assert counts[kind] == PARTS * OF_A_PART[kind]
