"""Processes whose goroutines a verb reads. A failure is reported, and does not affect others."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ebpfprof.console.terminal import say
from ebpfprof.console.text import printable
from ebpfprof.errors import CorruptBinary, EbpfprofError, OutputError
from ebpfprof.goruntime.open_processes import OpenProcesses
from ebpfprof.goruntime.other_code import other_code_warning
from ebpfprof.goruntime.process import for_user
from ebpfprof.goruntime.waits.dump import GoroutineDumper
from ebpfprof.system.open_files import too_many
from symbolizer import SymbolizerError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack

    from ebpfprof.goruntime.open_processes import OpenOptions
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.process.file_opener import FileOpener


class ReadableTargets:
    """Opens processes, and keeps the failures."""

    def __init__(self, files: FileOpener, opening: OpenOptions) -> None:
        self._processes = OpenProcesses(files, opening)
        self.failures: list[EbpfprofError] = []
        """In their order."""

    def open(self, pid: int, held: ExitStack) -> tuple[GoTarget, GoroutineDumper]:
        """The process, open until `held` is closed. Raises EbpfprofError or SymbolizerError."""
        go = held.enter_context(self._processes.open(pid)).go()
        if go.assumption:
            say(f"ebpfprof: {go.assumption}; the output may be wrong.", err=True)
        if warning := other_code_warning(go, has_probes=False):
            say(f"ebpfprof: {warning}", err=True)
        try:
            return go, GoroutineDumper(go)
        except SymbolizerError as error:
            raise for_user(go.target, error, go.path) from error

    @contextmanager
    def reported(self, pid: int) -> Iterator[None]:
        """Print and keep errors of the block that are for the user. Raises OutputError."""
        try:
            yield
        except OutputError:
            raise
        except SymbolizerError as error:
            self._fail(CorruptBinary(f"The tables of process {pid} are corrupt: {error}."))
        except EbpfprofError as error:
            self._fail(error)

    def _fail(self, error: EbpfprofError) -> None:
        error = too_many(error) or error
        is_new = str(error) not in map(str, self.failures)
        self.failures.append(error)
        if is_new:
            say("ebpfprof: " + "\n".join(map(printable, str(error).splitlines())), err=True)


def failure_as_json(pid: int, error: EbpfprofError) -> dict[str, Any]:
    """The JSON object for a process that can't be read."""
    return {"pid": pid, "error": str(error), "exit_code": int(error.exit_code)}
