"""The control groups of a process, of both versions, with all groups around them.

The process may be in a container that we are not in. Its groups are found by /proc/PID/cgroup and
by where the file systems of control groups are mounted here, or for the first process of the
machine. Groups that are in neither are unknown: those above ours in a container.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from ebpfprof.process.proc_files import ProcFiles
from ebpfprof.system.bounded_file import read_bounded

_UNIFIED: Final = "cgroup2"
_OLD: Final = "cgroup"
_MAX_BYTES: Final = 1 << 20  # of one file of a group
_MOST_GROUPS: Final = 64  # nested ones
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
_MOUNTS: Final = (("self", ""), ("1", "/proc/1/root"))
"""Whose mounts are searched, and what comes before their names here."""


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """A group: its `name` is its path from the root of the mounted hierarchy, "/" for that.

    `is_unified`: of version 2. What can't be read of it is empty.
    """

    name: str
    folder: str
    is_unified: bool

    def read(self, file: str) -> bytes:
        """The content of one of its files, up to 1 MiB."""
        try:
            return read_bounded(f"{self.folder}/{file}", _MAX_BYTES)
        except OSError:
            return b""


@dataclass(frozen=True, slots=True)
class GroupMount:
    """A mounted hierarchy: `root` is the group that is mounted at `folder`.

    `controllers` are those of version 1, () for version 2.
    """

    root: str
    folder: str
    controllers: tuple[str, ...]
    is_unified: bool

    def group(self, path: str) -> str | None:
        """The path of a group below this root; None if it is elsewhere, "" for the root."""
        parts, root = _parts(path), _parts(self.root)
        below = parts[len(root) :]
        return "/".join(below) if parts[: len(root)] == root and ".." not in below else None


class ControlGroups:
    """Finds the groups of processes in mounted hierarchies, any number of times."""

    def __init__(self, mounted: Iterable[GroupMount]) -> None:
        self._mounts = tuple(mounted)

    def of(self, files: ProcFiles, controller: str) -> tuple[ControlGroup, ...]:
        """The groups that a controller ("cpu", "memory") has for a process, the innermost first.

        Those of version 2 may lack the controller's files. "" is for what version 2 counts for
        all its groups. () if none is found.
        """
        paths = group_paths(files.read("cgroup"))
        old = next((path for names, path in paths if controller in names), None)
        unified = next((path for names, path in paths if not names), None)
        if old is None and unified is None:
            return ()
        # A controller that version 1 has is not in version 2.
        chosen = (
            mount
            for mount in self._mounts
            if (mount.is_unified if old is None else controller in mount.controllers)
        )
        around = (_around(mount, old or unified or "/") for mount in chosen)
        return max(around, key=len, default=())


def mounted_groups() -> Iterator[GroupMount]:
    """The hierarchies that are mounted here, then those of the machine's first process."""
    for process, before in _MOUNTS:
        yield from mounts(_read(f"/proc/{process}/mountinfo"), before)


def group_paths(text: bytes) -> list[tuple[tuple[str, ...], str]]:
    """The controllers and the path of each group in a /proc/PID/cgroup (cgroups(7)).

    There are no controllers for the group of version 2, nor for hierarchies that only have a name.
    """
    groups = []
    for line in os.fsdecode(text).split("\n"):
        number, _, rest = line.partition(":")
        controllers, separator, path = rest.partition(":")
        if separator and path.startswith("/") and (controllers or number == "0"):
            names = tuple(name for name in controllers.split(",") if name)
            groups.append((names, path))
    return groups


def mounts(text: bytes, before: str = "") -> Iterator[GroupMount]:
    """The hierarchies in a /proc/PID/mountinfo (proc_pid_mountinfo(5)).

    `before` is put before the names of folders.
    """
    for line in os.fsdecode(text).split("\n"):
        of_mount, _, of_system = line.partition(" - ")
        words, system = of_mount.split(" "), of_system.split(" ")
        if len(words) < 5 or len(system) < 3 or system[0] not in (_OLD, _UNIFIED):
            continue
        root, folder = (_ESCAPED.sub(_unescaped, word) for word in words[3:5])
        is_unified = system[0] == _UNIFIED
        controllers = () if is_unified else tuple(system[2].split(","))
        if root.startswith("/") and folder.startswith("/"):
            yield GroupMount(root, before + folder, controllers, is_unified)


def _around(mount: GroupMount, path: str) -> tuple[ControlGroup, ...]:
    """The group with that path and those around it, the innermost first; () if it is not there."""
    name = mount.group(path)
    if name is None or not os.path.isdir(f"{mount.folder}/{name}"):
        return ()
    parts = _parts(name)
    inner = ("/".join(parts[:length]) for length in range(len(parts), -1, -1))
    return tuple(
        ControlGroup(f"/{group}", f"{mount.folder}/{group}".rstrip("/"), mount.is_unified)
        for group in islice(inner, _MOST_GROUPS)
    )


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 8))


def _read(path: str) -> bytes:
    try:
        return read_bounded(path, _MAX_BYTES)
    except OSError:
        return b""
