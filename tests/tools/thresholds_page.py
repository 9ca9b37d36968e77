"""The page of the thresholds of `explain`, docs/design/explain-thresholds.md, from the rules."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

PAGE: Final = Path("docs/design/explain-thresholds.md")
_FINDINGS: Final = Path(__file__).parents[2] / "ebpfprof" / "findings"
_TOP: Final = """\
# Thresholds of explain

When a rule of [explain](explain.md) reports something, and why then: the numbers in
`ebpfprof/findings/`. Shares are 0 to 1, times in nanoseconds (`NS`) or seconds (`S`).
"""


class Threshold(NamedTuple):
    """A number of a rule, with its reason."""

    name: str
    value: str
    reason: str


def thresholds_page() -> str:
    """The page."""
    parts = [_TOP]
    for path in sorted(_FINDINGS.glob("*.py")):
        tree = ast.parse(path.read_text())
        if rows := list(thresholds(tree)):
            lines = [f"## {path.stem.replace('_', ' ').capitalize()}", ""]
            lines += [
                f"{ast.get_docstring(tree)}",
                "",
                "| name | value | reason |",
                "|---|---|---|",
            ]
            lines += [f"| `{one.name}` | {one.value} | {one.reason} |" for one in rows]
            parts.append("\n".join([*lines, ""]))
    return "\n".join(parts)


def thresholds(tree: ast.Module) -> Iterator[Threshold]:
    """The numbers of a module that have a reason, as a text below them."""
    for node, following in zip(tree.body, tree.body[1:], strict=False):
        match node, following:
            case (
                ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=int() | float())),
                ast.Expr(value=ast.Constant(value=str(reason))),
            ):
                assert node.value is not None
                value = ast.literal_eval(node.value)
                text = " ".join(reason.split()).replace("|", "\\|")
                yield Threshold(name.lstrip("_"), f"{value:,}", text)
