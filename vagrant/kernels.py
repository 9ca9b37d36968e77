"""The matrix of kernels and selections of tests: kernels.toml, read and checked."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast, get_args

FILE: Final = Path(__file__).parent / "kernels.toml"

Expected = Literal["works", "refused"]
REFUSED: Final = "refused"


class MatrixError(Exception):
    """kernels.toml has an invalid entry; the message says where."""


@dataclass(frozen=True)
class Kernel:
    """A kernel of Debian, by its suite and its metapackage."""

    name: str
    suite: str
    package: str
    expected: Expected


@dataclass(frozen=True)
class Selection:
    """Tests: arguments of pytest, how many must pass, the factor for deadlines under TCG."""

    name: str
    tests: tuple[str, ...]
    passes: int
    slowness: float


@dataclass(frozen=True)
class Matrix:
    """All of kernels.toml, by name."""

    kernels: Mapping[str, Kernel]
    selections: Mapping[str, Selection]

    def selection_for(self, kernel: Kernel, chosen: str) -> Selection:
        """The selection for a kernel if the user chose `chosen`. Raises MatrixError."""
        name = REFUSED if kernel.expected == "refused" else chosen
        if name not in self.selections:
            known = ", ".join(sorted(set(self.selections) - {REFUSED}))
            raise MatrixError(f"There is no selection {name!r}: choose one of {known}.")
        return self.selections[name]


def read(path: Path = FILE) -> Matrix:
    """The matrix in `path`. Raises MatrixError."""
    try:
        data = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise MatrixError(f"{path} is no TOML: {error}") from error
    kernels = [_kernel(path, table) for table in data.pop("kernel", [])]
    selections = {
        name: _selection(path, name, table) for name, table in data.pop("selection", {}).items()
    }
    if data:
        raise MatrixError(f"{path}: it may have kernel and selection only, not {', '.join(data)}.")
    named = {kernel.name: kernel for kernel in kernels}
    if len(named) != len(kernels):
        raise MatrixError(f"{path}: two kernels have the same name.")
    return Matrix(named, selections)


def _kernel(path: Path, table: dict[str, Any]) -> Kernel:
    where = f"{path}, kernel {table.get('name', '?')}"
    _check(where, table, {"name": str, "suite": str, "package": str, "expected": str})
    if table["expected"] not in get_args(Expected):
        raise MatrixError(f"{where}: expected must be one of {', '.join(get_args(Expected))}.")
    return Kernel(
        table["name"], table["suite"], table["package"], cast("Expected", table["expected"])
    )


def _selection(path: Path, name: str, table: dict[str, Any]) -> Selection:
    where = f"{path}, selection {name}"
    _check(where, table, {"tests": list, "passes": int, "slowness": (int, float)})
    if table["passes"] < 1 or not table["tests"] or table["slowness"] < 1:
        raise MatrixError(f"{where}: tests, passes and slowness must each be 1 or more.")
    return Selection(name, tuple(table["tests"]), table["passes"], float(table["slowness"]))


def _check(where: str, table: dict[str, Any], wanted: Mapping[str, Any]) -> None:
    if set(table) != set(wanted):
        raise MatrixError(f"{where}: it must have {', '.join(wanted)}, and nothing else.")
    for name, kind in wanted.items():
        if not isinstance(table[name], kind):
            raise MatrixError(f"{where}: {name} is no {kind}.")
