"""Changes operators and numbers in modules, one at a time, and says which changes tests catch.

    python -m tests.tools.mutants [--most N] [--seed N] PATH [PATH...] -- PYTEST-ARGUMENT...

PATH is a module or a folder of ebpfprof or symbolizer. It works in a copy of the checkout. A change
that no test catches is printed, with its line: a hole in the tests, or a change without an effect.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
_COPIED: Final = ("ebpfprof", "symbolizer", "bpf", "tests", "docs", "pyproject.toml", "README.md")
_LEAST_PATIENCE_S: Final = 20
_PATIENCE: Final = 10
"""Times what the tests take without a change: a change may make a loop endless."""
_OPERATORS: Final[dict[type[ast.AST], str]] = {
    **{ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="},
    **{ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is"},
    **{ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.FloorDiv: "*", ast.Mod: "*"},
    **{ast.LShift: ">>", ast.RShift: "<<", ast.BitAnd: "|", ast.BitOr: "&"},
    **{ast.And: "or", ast.Or: "and"},
}


class Mutant(NamedTuple):
    """A change of a module: at (line, column, end column), all on one line."""

    module: Path
    line: int
    start: int
    end: int
    new: str

    def source(self) -> tuple[str, str]:
        """The line before and after."""
        line = self.module.read_text().splitlines()[self.line - 1].encode()
        return line.decode(), (line[: self.start] + self.new.encode() + line[self.end :]).decode()


def mutants(module: Path) -> Iterator[Mutant]:
    """All changes of a module; annotations and docstrings have none."""
    tree = ast.parse(module.read_text())
    # These of zip() and dataclass() say what holds anyway.
    skipped = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg in ("strict", "frozen", "slots", "kw_only")
    }
    skipped |= {
        id(below)
        for node in ast.walk(tree)
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if part is not None
        for below in ast.walk(part)
    }
    for node in ast.walk(tree):
        if id(node) in skipped or getattr(node, "lineno", 0) != getattr(node, "end_lineno", 1):
            continue
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
                yield _between(module, left, right, _OPERATORS[type(op)])
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
                yield _between(module, left, right, _OPERATORS[type(operator)])
            case ast.BoolOp(op=joining, values=[left, right]):
                yield _between(module, left, right, _OPERATORS[type(joining)])
            case ast.Constant(value=bool() as value):
                yield _instead(module, node, str(not value))
            case ast.Constant(value=int() as value):
                yield _instead(module, node, str(value + max(1, value // 2)))


def _instead(module: Path, node: ast.expr, new: str) -> Mutant:
    return Mutant(module, node.lineno, node.col_offset, node.end_col_offset or 0, new)


def _between(module: Path, left: ast.expr, right: ast.expr, new: str) -> Mutant:
    """Another operator; parentheses around the operands stay."""
    line = module.read_text().splitlines()[left.lineno - 1].encode()
    start, end = left.end_col_offset or 0, right.col_offset
    text = line[start:end].decode()
    closing = len(text) - len(text.lstrip(") "))
    opening = len(text) - len(text.rstrip("( "))
    before, behind = text[:closing], text[len(text) - opening :]
    return Mutant(module, left.lineno, start, end, f"{before or ' '}{new}{behind or ' '}")


def _passes(copy: Path, arguments: Sequence[str], patience_s: float | None) -> bool:
    """Whether the tests pass in time; None: however long that takes."""
    command = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", *arguments]
    nowhere = subprocess.DEVNULL
    with subprocess.Popen(
        command, cwd=copy, stdout=nowhere, stderr=nowhere, start_new_session=True
    ) as running:
        try:
            return running.wait(patience_s) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            with suppress(ProcessLookupError):  # none is left
                os.killpg(running.pid, signal.SIGKILL)  # and what the tests started


def _is_caught(
    copy: Path, mutant: Mutant, arguments: Sequence[str], patience_s: float
) -> bool | None:
    """Whether a test fails; None for a change that is no Python."""
    path = copy / mutant.module.relative_to(ROOT)
    text = path.read_text()
    lines = text.splitlines(keepends=True)
    lines[mutant.line - 1] = mutant.source()[1] + "\n"
    changed = "".join(lines)
    try:
        ast.parse(changed)
    except SyntaxError:
        return None
    path.write_text(changed)
    # Tests of the module fail first, most often. pytest runs them once, even if named twice.
    first = sorted(map(str, (copy / "tests/unit").rglob(f"test_{path.stem}.py")))
    try:
        return not _passes(copy, [*first, *arguments], patience_s)
    finally:
        path.write_text(text)


def main(arguments: Sequence[str]) -> int:
    """Print the changes that are not caught, and how many are."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    own, of_pytest = arguments[:end], arguments[end + 1 :]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("paths", nargs="+", type=Path)
    options = parser.parse_args(own)
    modules = [
        module
        for path in options.paths
        for module in (sorted(path.rglob("*.py")) if path.is_dir() else [path])
    ]
    found = [mutant for module in modules for mutant in mutants(module.resolve())]
    chosen = random.Random(options.seed).sample(found, min(options.most, len(found)))
    caught = tried = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in _COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, copy / name, symlinks=True)
            else:
                shutil.copy(ROOT / name, copy / name)
        began_s = time.monotonic()
        if not _passes(copy, of_pytest, None):
            print("The tests fail without a change.", file=sys.stderr)
            return 1
        patience_s = max(_LEAST_PATIENCE_S, _PATIENCE * (time.monotonic() - began_s))
        for mutant in chosen:
            is_caught = _is_caught(copy, mutant, of_pytest, patience_s)
            if is_caught is None:
                continue
            tried += 1
            caught += is_caught
            if not is_caught:
                before, after = mutant.source()
                where = mutant.module.relative_to(ROOT)
                print(
                    f"{where}:{mutant.line}\n  - {before.strip()}\n  + {after.strip()}", flush=True
                )
    print(f"{caught} of {tried} changes are caught; {len(found)} can be made")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
