"""How `ebpfprof memory` reads processes and shows the result."""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ebpfprof.console.terminal import has_color, say, width
from ebpfprof.console.text import printable
from ebpfprof.errors import EbpfprofError
from ebpfprof.export import memory_json
from ebpfprof.export.tables import memory
from ebpfprof.goruntime.heap.memory_reader import read_memory
from ebpfprof.goruntime.open_processes import OpenProcesses

if TYPE_CHECKING:
    from ebpfprof.goruntime.open_processes import OpenOptions
    from ebpfprof.process.file_opener import FileOpener


class ProcessReports(ABC):
    """Shows something of processes. A failure is reported, and does not affect others."""

    def __init__(self, files: FileOpener, *, as_json: bool, opening: OpenOptions) -> None:
        self._as_json = as_json
        self._processes = OpenProcesses(files, opening)
        self.failures: list[EbpfprofError] = []
        """In the order of the processes."""

    def show(self, pids: Sequence[int]) -> None:
        """Show processes one after the other. Raises OutputError."""
        for number, pid in enumerate(pids):
            try:
                text = self._text(pid)
            except EbpfprofError as error:
                self.failures.append(error)
                said = "\n".join(map(printable, str(error).splitlines()))
                say(f"ebpfprof: {said}", err=True)
                text = memory_json.failed(pid, error) if self._as_json and len(pids) > 1 else ""
            blank = "\n" if number and text and not self._as_json else ""
            say(blank + text, end="")

    @abstractmethod
    def _text(self, pid: int) -> str:
        """What is shown of a process; nothing if it was written to a file."""


class MemoryReports(ProcessReports):
    """Shows the memory of processes."""

    def __init__(
        self, files: FileOpener, *, as_json: bool, show_all: bool, opening: OpenOptions
    ) -> None:
        super().__init__(files, as_json=as_json, opening=opening)
        self._show_all = show_all

    def _text(self, pid: int) -> str:
        with self._processes.open(pid) as process:
            binary, target = process.binary(), process.target
            with target.allowance:
                memory_use = read_memory(target, binary, process.load_bias())
                now_s = time.time()
            version = printable(binary.version.text)
            if self._as_json:
                return memory_json.encode(memory_use, pid, target.name, version, now_s)
            return memory.render(
                memory_use,
                f"process {pid} ({printable(target.name)}, {version})",
                now_s,
                show_all=self._show_all,
                width=width(sys.stdout),
                color=has_color(sys.stdout),
            )
