"""Selects processes of the ring for `history`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ebpfprof.console.text import listed, printable

if TYPE_CHECKING:
    from ebpfprof.ring.index import IndexedProcess
    from ebpfprof.ring.reader import RecordedTime

_MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class Selection:
    """Names and shell patterns that select processes; an empty field selects all.

    `names` are names of services or commands.
    """

    names: Sequence[str] = ()
    pids: Sequence[int] = ()
    namespaces: Sequence[str] = ()
    pods: Sequence[str] = ()
    containers: Sequence[str] = ()

    @property
    def is_all(self) -> bool:
        """Whether it selects all."""
        return not (self.names or self.pids or self.namespaces or self.pods or self.containers)

    def has(self, indexed: IndexedProcess) -> bool:
        """Whether a process is selected."""
        process = indexed.process
        identity = process.identity
        return (
            _fits((identity.service, process.command), self.names)
            and (not self.pids or process.pid in self.pids)
            and _fits((identity.namespace,), self.namespaces)
            and _fits((identity.pod,), self.pods)
            and _fits((identity.container,), self.containers)
        )

    def __str__(self) -> str:
        """In words, for a message: "shop", "process 42 in pod shop-7"."""
        words = [listed(list(map(printable, self.names)))] if self.names else []
        if self.pids:
            of = "process" if len(self.pids) == 1 else "processes"
            words.append(f"{of} {listed(list(map(str, self.pids)))}")
        for what, patterns in (
            ("namespace", self.namespaces),
            ("pod", self.pods),
            ("container", self.containers),
        ):
            if patterns:
                words.append(f"in {what} {listed(list(map(printable, patterns)))}")
        return " ".join(words)


def in_time(time: RecordedTime, selection: Selection) -> list[IndexedProcess]:
    """The selected processes in the ring in that time, by service and start."""
    numbers = {file.process for file in time.files}
    numbers |= {gap.process for gap in time.unrecorded}
    chosen = [
        one for one in time.processes.values() if one.number in numbers and selection.has(one)
    ]
    return sorted(chosen, key=lambda one: (name_of(one), one.process.began_ns, one.number))


def name_of(indexed: IndexedProcess) -> str:
    """The name of its service, with its namespace; not yet printable."""
    identity = indexed.process.identity
    return f"{identity.namespace}/{identity.service}" if identity.namespace else identity.service


def named(processes: Sequence[IndexedProcess]) -> str:
    """The services of some processes in words, printable."""
    names = sorted({name_of(process) for process in processes})
    if len(names) > _MOST_NAMED:
        return f"{len(names)} services"
    return listed(list(map(printable, names)))


def _fits(values: Sequence[str], patterns: Sequence[str]) -> bool:
    return not patterns or any(
        value and (value == pattern or fnmatchcase(value, pattern))
        for value in values
        for pattern in patterns
    )
