"""The tree of paths: what belongs to one place."""

from __future__ import annotations

from ebpfprof.goruntime.references.object_types import ReferenceStep
from ebpfprof.goruntime.references.path_tree import MAX_PATHS, PathTree

NODE, DATA = 1, 2


def test_a_list_is_one_place() -> None:
    tree = PathTree()
    root = tree.root("main.list", 9)
    first = tree.below(root, ReferenceStep("", NODE))
    assert first == root  # what the variable itself leads to
    following = ReferenceStep(".next", NODE)
    assert tree.below(first, following) == first
    data = tree.below(first, ReferenceStep(".data", DATA))
    assert tree.nodes[data].label == ".data"
    assert tree.below(first, ReferenceStep(".data", DATA)) == data
    # Back to a node from its data: to the place that has nodes.
    assert tree.below(data, ReferenceStep(".owner", NODE)) == first


def test_different_references_are_different_places() -> None:
    tree = PathTree()
    root = tree.root("main.cache", 9)
    left, right = (tree.below(root, ReferenceStep(name, DATA)) for name in (".left", ".right"))
    assert left != right


def test_parts_belong_to_what_has_them() -> None:
    tree = PathTree()
    root = tree.root("main.cache", 9)
    assert tree.below(root, ReferenceStep("", NODE, is_part=True)) == root


def test_unknown_objects_below_unknown_ones_are_one_place() -> None:
    tree = PathTree()
    root = tree.root("goroutine main.work", 0)
    assert tree.below(root, ReferenceStep("?", 0)) == root


def test_there_is_a_limit() -> None:
    tree = PathTree()
    root = tree.root("main.cache", 0)
    places = {tree.below(root, ReferenceStep(f".{n}", n)) for n in range(1, 2 * MAX_PATHS)}
    assert len(tree.nodes) == MAX_PATHS
    assert root in places
