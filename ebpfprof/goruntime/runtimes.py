"""The Go runtimes of a process: the file of each, and where it is loaded.

Most Go processes have one, in their executable. Other executables have it in a mapped file: a
library of -buildmode=c-shared, a C library that a Go archive was linked into, or a program that was
started as an argument of ld.so. A process with several such files has a runtime in each.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import listed, printable
from ebpfprof.errors import NoSuchRuntime, NotGoProgram
from ebpfprof.process.mappings import MappedObjects
from symbolizer import ElfFile, SymbolizerError, read_build_info

if TYPE_CHECKING:
    from ebpfprof.goruntime.plugins import PluginModule
    from ebpfprof.process.process import Target

_GO_SECTIONS: Final = frozenset((".gopclntab", ".data.rel.ro.gopclntab", ".go.buildinfo"))
_PARTS: Final = frozenset(("plugin", "shared"))
"""The values of -buildmode of files that use the runtime of another file."""


@dataclass(frozen=True, slots=True)
class GoRuntime:
    """A file with a Go runtime that a process has mapped: its path, and the open file.

    `mapped_bias` is runtime address minus linked address; None of the executable, whose bias is in
    the auxiliary vector.
    """

    path: str
    fd: int
    mapped_bias: int | None = None

    def is_called(self, name: str) -> bool:
        """Whether a user who types `name` means it: its path or its file name."""
        return name in (self.path, os.path.basename(self.path))

    def open_elf(self, target: Target) -> ElfFile:
        """The file, opened again for a caller who closes it; its readers share an allowance.

        Raises ElfError or UnsupportedElf.
        """
        if self.mapped_bias is None:
            return target.open_elf()
        return ElfFile.open(self.fd, target.allowance)

    def load_bias(self, target: Target, elf: ElfFile) -> int:
        """Runtime address minus linked address, of its file `elf`. Raises TargetGone."""
        return target.load_bias(elf.entry) if self.mapped_bias is None else self.mapped_bias


def executable_of(target: Target) -> GoRuntime:
    """The executable, whether it has a Go runtime or not."""
    return GoRuntime(target.exe_name, target.exe_fd)


@contextmanager
def mapped_runtimes(
    target: Target, plugins: Sequence[PluginModule] = ()
) -> Iterator[tuple[GoRuntime, ...]]:
    """The mapped files with a Go runtime, without the executable, by address; open in the block.

    `plugins` of the executable are not among them, nor are files that can't be read.
    """
    executable = os.fstat(target.exe_fd)
    found: dict[GoRuntime, None] = {}
    with MappedObjects(target) as objects:
        for mapped in objects.known():
            elf, mapping = mapped.elf, mapped.mapping
            if elf is None or elf.fd < 0 or os.path.samestat(os.fstat(elf.fd), executable):
                continue
            is_plugin = any(mapping.start <= plugin.text < mapping.limit for plugin in plugins)
            if not is_plugin and _has_runtime(elf):
                found[GoRuntime(mapping.filename, elf.fd, mapped.bias)] = None
        yield tuple(found)


def _has_runtime(elf: ElfFile) -> bool:
    if not _GO_SECTIONS & elf.sections.keys():
        return False
    info = None
    # Without it: assume that it has a runtime.
    with suppress(SymbolizerError, struct.error), elf.allowance:
        info = read_build_info(elf)
    return info is None or info.settings.get("-buildmode") not in _PARTS


def chosen(target: Target, runtimes: Sequence[GoRuntime], name: str | None) -> GoRuntime:
    """The one of these that is called `name`; without a name, the only one.

    Raises NoSuchRuntime, or NotGoProgram if there are several.
    """
    fitting = [runtime for runtime in runtimes if not name or runtime.is_called(name)]
    if len(fitting) == 1:
        return fitting[0]
    process = f"process {target.pid} ({printable(target.name)})"
    if name is not None and not fitting:
        others = f" It has one in {listed(names_of(runtimes))}." if runtimes else ""
        raise NoSuchRuntime(
            f"No file called {printable(name)} with a Go runtime is mapped in {process}.{others}"
        )
    paths = {runtime.path for runtime in fitting}
    if len(paths) == 1:
        why = f"{process} has mapped {printable(paths.pop())} twice, so probes would count both"
    else:
        files = listed(names_of(fitting))
        why = f"{process} has several Go runtimes, in {files}: choose one with --runtime"
    message = f"{why[0].upper()}{why[1:]}. Only --profile cpu needs no choice."
    raise NotGoProgram(message, why, has_several=True)


def names_of(runtimes: Collection[GoRuntime]) -> tuple[str, ...]:
    """The shortest names with which --runtime chooses them, sorted and printable."""
    files = [os.path.basename(runtime.path) for runtime in runtimes]
    return tuple(
        sorted(
            printable(file if files.count(file) == 1 else runtime.path)
            for file, runtime in zip(files, runtimes, strict=True)
        )
    )
