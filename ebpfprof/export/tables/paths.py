"""Tables of what the time of goroutines depended on: a tree of who waited for whom."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ebpfprof.console import columns
from ebpfprof.console.text import duration, percent
from ebpfprof.export.tables import chain_words
from ebpfprof.export.tables.quantities import share

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator

    from ebpfprof.timeline.critical import Chain
    from ebpfprof.timeline.links import Link

_HEADINGS: Final = ("Time", "Share", "What it depended on")
_MUCH: Final = 1 / 3
_LEAST: Final = 0.001


@dataclass(slots=True)
class _Node:
    text: str
    ns: int = 0
    children: dict[str, _Node] = field(default_factory=dict)

    def in_order(self, depth: int = 0) -> Iterator[tuple[int, _Node]]:
        """All below it, those that took most first, each followed by those below it."""
        for node in sorted(self.children.values(), key=lambda node: -node.ns):
            yield depth, node
            yield from node.in_order(depth + 1)


def render_path(path: Counter[Chain], *, limit: int = 16, width: int | None, color: bool) -> str:
    """What goroutines did themselves; below each wait, what those did for whom they waited.

    For `width` and `color` see columns.table(). Ends with a newline.
    """
    root = _tree(path)
    nodes = [node for node in root.in_order() if node[1].ns >= _LEAST * root.ns]
    least_ns = min((node.ns for _, node in _largest(nodes, limit)), default=0)
    # What is within another is not longer: none is shown without that.
    shown = [(depth, node) for depth, node in nodes if node.ns >= least_ns][:limit]
    rows = [
        columns.Row(
            (duration(node.ns), share(node.ns, root.ns) or "-"),
            node.text,
            before="  " * depth,
            is_dim=depth > 0,
        )
        for depth, node in shown
    ]
    text = columns.table(_HEADINGS, rows, width=width, color=color)
    left = sum(1 for _ in root.in_order()) - len(shown)
    return text + (f"... and {left} more\n" if left > 0 else "")


def path_finding(path: Counter[Chain]) -> str:
    """The chain that took most of the time, in a sentence; "" if none took much."""
    whole_ns = path.total()
    texts: dict[str, int] = {}
    for chain, ns in path.items():
        text = chain_words.chain_sentence(chain)
        texts[text] = texts.get(text, 0) + ns
    most = max(texts, key=lambda text: texts[text], default="")
    if not most or texts[most] < _MUCH * whole_ns:
        return ""
    return f"{percent(texts[most] / whole_ns)} of that time {most}."


def _largest(nodes: list[tuple[int, _Node]], limit: int) -> list[tuple[int, _Node]]:
    return sorted(nodes, key=lambda node: -node[1].ns)[:limit]


def _tree(path: Counter[Chain]) -> _Node:
    root = _Node("")
    is_one = len({chain[0].who.name for chain in path}) == 1
    for chain, ns in path.items():
        node = root
        node.ns += ns
        for number, link in enumerate(chain):
            text = _text(chain[number - 1] if number else None, link, is_one=is_one)
            node = node.children.setdefault(text, _Node(text))
            node.ns += ns
    return root


def _text(before: Link | None, link: Link, *, is_one: bool) -> str:
    did = chain_words.cell(link, is_own=before is None)
    if before is None:
        return did if is_one else f"{link.who.name}: {did}"
    return f"{chain_words.holder(before)} {link.who.name}: {did}"
