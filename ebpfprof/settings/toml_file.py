"""TOML files that are read as root: only trusted ones, with the line of each mistake.

Python's tomllib gives no positions, nor does tomlkit. `line_of` finds them by parsing the first
lines again, which takes a few milliseconds and only happens for a mistake.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ebpfprof.console.quantities import similar
from ebpfprof.console.text import printable
from ebpfprof.errors import BadConfig
from ebpfprof.settings.values import Value, sentence

_MAX_BYTES: Final = 64 << 10
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class TomlFile:
    """A file that was read; `shown` is its name in messages."""

    shown: str
    text: str
    tables: dict[str, Any]

    def place(self, path: Path) -> str:
        """FILE:LINE of a value, which is there."""
        return f"{self.shown}:{line_of(self.text, path)}"

    def wrong(self, path: Path, message: str) -> BadConfig:
        """The error of a value: `message` is a sentence."""
        return BadConfig(f"{self.place(path)}: {message}")

    def read(self, kind: Value, value: object, path: Path) -> Any:  # noqa: ANN401 - of any type
        """A value of the file as a setting. Raises BadConfig."""
        try:
            return kind.read(value)
        except ValueError as error:
            raise self.wrong(path, sentence(str(path[-1]), error)) from error

    def require_known(
        self, names: Iterable[str], known: Collection[str], table: Path, what: str
    ) -> None:
        """Raise BadConfig for a key of a table that is not among the `known`.

        `what` begins the message: "There is no setting".
        """
        for name in names:
            if name not in known:
                hint = similar(name, known) or similar(name.replace("-", "_"), known)
                raise self.wrong((*table, name), f"{what} '{printable(name)}'.{hint}")

    def table(self, name: str) -> dict[str, Any]:
        """The table of that name, empty without one. Raises BadConfig if it is something else."""
        table = self.tables.get(name, {})
        if not isinstance(table, dict):
            raise self.wrong((name,), f"{name} must be a table, [{name}].")
        return table

    def list_of_tables(self, name: str) -> list[tuple[Path, dict[str, Any]]]:
        """The tables below [[name]], with their paths. Raises BadConfig."""
        tables = self.tables.get(name, [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise self.wrong((name,), f"{name} must be tables, each below its own [[{name}]].")
        return [((name, index), table) for index, table in enumerate(tables)]


def read_trusted(fd: int, shown: str, user: int) -> str:
    """The text of an open file. Closes `fd`.

    Raises OSError; BadConfig if others than root and `user` can change it, or if it is no text.
    """
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise BadConfig(f"{shown} is not a regular file.")
        if status.st_uid not in (0, user):
            raise BadConfig(
                f"{shown} belongs to neither root nor the user who runs ebpfprof: change its owner."
            )
        if status.st_mode & stat.S_IWOTH:
            raise BadConfig(f"{shown} can be changed by all users: chmod o-w it.")
        with open(fd, "rb", closefd=False) as opened:
            data = opened.read(_MAX_BYTES + 1)
    finally:
        os.close(fd)  # open() itself would leave that of a directory open
    if len(data) > _MAX_BYTES:
        raise BadConfig(f"{shown} is longer than {_MAX_BYTES >> 10} KiB: shorten it.")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadConfig(f"{shown}:{line}: This is not UTF-8.") from error


def parsed(text: str, shown: str) -> TomlFile:
    """The file with this text; `shown` is its name in messages. Raises BadConfig with the line."""
    try:
        return TomlFile(shown, text, tomllib.loads(text))
    except RecursionError as error:
        raise BadConfig(f"{shown} is nested too deeply.") from error
    except ValueError as error:  # also a number with too many digits
        raise _not_toml(shown, text, error) from error


def _not_toml(shown: str, text: str, error: ValueError) -> BadConfig:
    position = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", str(error))
    reason = str(error)[: position.start()] if position else str(error)
    place = f"{shown}:{position[1] or len(text.splitlines())}" if position else shown
    if reason.startswith("Cannot overwrite"):
        return BadConfig(f"{place}: This key is in the file twice.")
    if reason.startswith(("Cannot declare", "Cannot mutate")):
        return BadConfig(f"{place}: This table is in the file twice.")
    return BadConfig(f"{place}: This is not TOML: {printable(reason)}.")


def line_of(text: str, path: Sequence[str | int]) -> int:
    """The line, from 1 on, on which the value with this path of keys and indices begins.

    `text` is valid TOML that has the value. A binary search finds the shortest beginning of the
    text that has the value; its last line is the result. If a value spans several lines, its first
    lines alone are not TOML.
    """
    lines = text.splitlines(keepends=True)
    low, high = 1, len(lines)
    while low < high:
        middle = (low + high) // 2
        if _has(lines, middle, path):
            high = middle
        else:
            low = middle + 1
    return low


def _has(lines: list[str], count: int, path: Sequence[str | int]) -> bool:
    """Whether the first `count` lines, and those they need to be valid TOML, have the value."""
    for end in range(count, len(lines) + 1):
        try:
            tables = tomllib.loads("".join(lines[:end]))
        except (tomllib.TOMLDecodeError, RecursionError, ValueError):
            continue
        return _contains(tables, path)
    return True


def _contains(tables: Mapping[str, Any], path: Sequence[str | int]) -> bool:
    value: Any = tables
    for key in path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return False
    return True
