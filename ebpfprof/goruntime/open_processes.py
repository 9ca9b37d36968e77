"""The processes that are open: each once, for all that read or record it."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ebpfprof.errors import NotGoProgram
from ebpfprof.goruntime.programs import Programs
from ebpfprof.process.file_opener import FileOpener
from ebpfprof.process.process import Target

if TYPE_CHECKING:  # the readers of executables are imported late: see Session.__init__
    from ebpfprof.goruntime.process import GoCode, GoProgram, GoTarget
    from ebpfprof.goruntime.runtimes import GoRuntime
    from ebpfprof.process.process import MapsLine
    from ebpfprof.profile.model import Mapping
    from symbolizer import GoBinary


@dataclass(frozen=True, slots=True)
class OpenOptions:
    """How processes are read, as the user chooses."""

    allow_unknown_go: bool = False
    """Whether an unknown version of Go is read like the nearest known one."""
    runtime: str | None = None
    """The name or path of the file whose runtime is read; None: the executable, or the only one."""


class OpenProcess:
    """A process that is open: its `target`, and what is known of its Go runtime.

    Any thread may use it, until the block of OpenProcesses.open() ends.
    """

    def __init__(self, target: Target, programs: Programs, options: OpenOptions) -> None:
        self.target = target
        self._programs, self._options = programs, options
        self._lock = threading.RLock()
        self._runtime: GoRuntime | None = None
        self._program: GoProgram | None = None
        self._lines: tuple[MapsLine, ...] = ()  # when _code was read
        self._code: GoCode | None = None
        self._go: GoTarget | None = None

    def binary(self, *, any_version: bool = False) -> GoBinary:
        """The tables of its program or library, and of the plugins that it has now.

        With `any_version`, also of an unknown version of Go that the options don't allow. Raises
        NotGoProgram, NoSuchRuntime, UnsupportedGo, UnsupportedTarget, CorruptBinary or TargetGone.
        """
        with self._lock:
            return self._known_code(any_version=any_version).binary

    @property
    def path(self) -> str:
        """The file with its Go runtime; "" until that is read."""
        return self._runtime.path if self._runtime else ""

    def load_bias(self, *, any_version: bool = False) -> int:
        """Runtime address minus linked address. Raises as binary()."""
        with self._lock:
            return self._known_code(any_version=any_version).load_bias

    def mappings(self, *, any_version: bool = False) -> tuple[Mapping, ...]:
        """Its executable mappings, first those of the program or library. Raises as binary()."""
        with self._lock:
            code = self._known_code(any_version=any_version)
            return self.target.executable_mappings(code.path, code.binary.elf.build_id)

    def go(self, *, any_version: bool = False) -> GoTarget:
        """The process as a Go program, with its mappings and plugins now. Raises as binary()."""
        from ebpfprof.goruntime.process import go_target

        with self._lock:
            code = self._known_code(any_version=any_version)
            if self._go is None:
                assert self._program
                self._go = go_target(self.target, self._program, code, self._others(code))
            return self._go

    def _known_code(self, *, any_version: bool) -> GoCode:
        """The code as it is now: plugins may be opened at any time."""
        from ebpfprof.goruntime.plugins import plugin_modules
        from ebpfprof.goruntime.process import go_code, require_known

        allow = self._options.allow_unknown_go or any_version
        if self._program is None:
            self._open_program(allow_unknown_go=allow)
        assert self._program
        assert self._runtime
        if not allow:
            require_known(self.target, self._program, self._runtime.path)
        lines = self.target.executable_lines()
        if self._code is None:
            self._code = go_code(self.target, self._program, self._runtime)
        elif lines and lines != self._lines:  # they are empty once the process has ended
            binary, load_bias = self._program.binary, self._code.load_bias
            modules = plugin_modules(self.target, binary, load_bias)
            if modules != self._code.modules:
                self._code = go_code(self.target, self._program, self._runtime, modules)
            self._go = None  # it has the mappings
        self._lines = lines or self._lines
        return self._code

    def _open_program(self, *, allow_unknown_go: bool) -> None:
        """Open the file with the Go runtime: the executable, unless another is meant."""
        from ebpfprof.goruntime.runtimes import chosen, executable_of, mapped_runtimes

        def use(runtime: GoRuntime) -> None:
            program = self._programs.of(self.target, runtime, allow_unknown_go=allow_unknown_go)
            self._program = self.target.held.enter_context(program)
            self._runtime = runtime

        name, executable = self._options.runtime, executable_of(self.target)
        not_go: NotGoProgram | None = None
        if name is None or executable.is_called(name):
            try:
                return use(executable)
            except NotGoProgram as error:
                not_go = error
        with mapped_runtimes(self.target) as runtimes:
            if not_go and not runtimes:
                raise not_go
            return use(chosen(self.target, runtimes, name))

    def _others(self, code: GoCode) -> tuple[str, ...]:
        """The names of libraries with Go runtimes, if the executable is read by default."""
        from ebpfprof.goruntime.runtimes import mapped_runtimes, names_of

        assert self._runtime
        if self._options.runtime or self._runtime.mapped_bias is not None:
            return ()
        with mapped_runtimes(self.target, code.modules) as runtimes:
            return names_of(runtimes)


class _Shared:
    """A process, once a user has opened it, and how many use it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """Held while the process is opened."""
        self.process: OpenProcess | None = None
        self.users = 0

    @property
    def is_current(self) -> bool:
        """Whether its pid still stands for it: it has neither ended nor called exec."""
        return self.process is None or self.process.target.ending() is None


class OpenProcesses:
    """Opens processes, each once while anything uses it. Several threads may use it.

    A process is closed when its last user is done. Once it has ended, or called exec, open() opens
    what has its pid now; the earlier users keep what they have.
    """

    def __init__(
        self,
        files: FileOpener | None = None,
        options: OpenOptions = OpenOptions(),
        *,
        runtime_locks: bool = False,
    ) -> None:
        """`files` opens executables and mapped files. For `runtime_locks` see GoProgram."""
        self._files = files
        self.options = options
        """How they are read."""
        self._programs = Programs(runtime_locks=runtime_locks)
        self._lock = threading.Lock()
        self._shared: dict[int, _Shared] = {}  # by pid

    @contextmanager
    def open(self, pid: int) -> Iterator[OpenProcess]:
        """The process, open within the block. Raises what Target raises.

        Errors of its file come out of the block as CorruptBinary or another of ebpfprof.errors.
        """
        shared = self._acquire(pid)
        try:
            process = self._opened(pid, shared)
            from symbolizer.errors import SymbolizerError

            try:
                yield process
            except (SymbolizerError, struct.error) as error:
                from ebpfprof.goruntime.process import for_user

                raise for_user(process.target, error, process.path) from error
        finally:
            self._release(pid, shared)

    def _opened(self, pid: int, shared: _Shared) -> OpenProcess:
        with shared.lock:  # without that of the table: others need not wait for a slow file
            if shared.process is None:
                shared.process = OpenProcess(Target(pid, self._files), self._programs, self.options)
            return shared.process

    def _acquire(self, pid: int) -> _Shared:
        with self._lock:
            shared = self._shared.get(pid)
            if shared is None or not shared.is_current:
                shared = self._shared[pid] = _Shared()
            shared.users += 1
            return shared

    def _release(self, pid: int, shared: _Shared) -> None:
        with self._lock:
            shared.users -= 1
            if shared.users:
                return
            if self._shared.get(pid) is shared:
                del self._shared[pid]
        if shared.process:
            shared.process.target.close()
