"""Go plugins that a program has opened: modules with their own copy of the runtime's code.

The runtime keeps its modules in a list that begins with runtime.firstmoduledata (Go 1.19 to 1.27,
runtime/symtab.go). A plugin's functions call the copies of gopark and ready in the plugin's own
file, and their names are in the plugin's own tables.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.errors import EbpfprofError
from ebpfprof.goruntime.limits import MAX_LOCK_CALLERS
from ebpfprof.process.mappings import MappedObjects
from symbolizer import ElfFile, GoBinary, SymbolizerError
from symbolizer.codeanalysis.park_sites import ProbeSites, probe_sites

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ebpfprof.process.process import Target

_MAX_MODULES: Final = 64
_WORD_BYTES: Final = 8


class PluginModule(NamedTuple):
    """A plugin in the runtime's list: runtime addresses of its moduledata and of its text."""

    start: int
    text: int


@dataclass(frozen=True, slots=True)
class ProbedCode:
    """A file of a process with a copy of the runtime's code, and the places to probe in it.

    `load_bias` is runtime address minus linked address. Sites are linked addresses.
    """

    binary: GoBinary
    load_bias: int
    sites: ProbeSites

    @property
    def elf(self) -> ElfFile:
        """The file."""
        return self.binary.elf

    def file_offset(self, pc: int) -> int:
        """Offset in bytes of the linked address `pc` in the file."""
        return self.elf.vaddr_to_offset(pc)

    @property
    def anchor(self) -> tuple[int, int]:
        """File offset and runtime address of an instruction that only a dying process passes."""
        return self.file_offset(self.sites.anchor_pc), self.sites.anchor_pc + self.load_bias


@dataclass(frozen=True, slots=True)
class GoPlugin:
    """An open plugin. `load_bias` is runtime address minus linked address.

    `code` has the places for its probes; None if it can't be probed.
    """

    path: str
    binary: GoBinary
    load_bias: int
    code: ProbedCode | None


def open_plugins(
    target: Target, binary: GoBinary, modules: Sequence[PluginModule]
) -> tuple[GoPlugin, ...]:
    """These plugins of a process of the program `binary`, in the order in which it opened them.

    Their files are open as long as `target`. Those that can't be read are missing.
    """
    if not modules:
        return ()
    objects = target.held.enter_context(MappedObjects(target))
    plugins = []
    for module in modules:
        mapped = objects.at(module.text)
        if mapped is None or mapped.elf is None:
            continue
        with suppress(SymbolizerError, struct.error):  # a plugin that we can't read has no probes
            code = GoBinary.open(mapped.elf, allow_unknown_version=True)
            is_module = code.module_start + mapped.bias == module.start
            if is_module and code.layout is binary.layout:
                probed = None
                with suppress(SymbolizerError, struct.error):  # it has names, and no probes
                    probed = ProbedCode(code, mapped.bias, probe_sites(code))
                plugins.append(GoPlugin(mapped.mapping.filename, code, mapped.bias, probed))
    return tuple(plugins)


def with_plugin_code(binary: GoBinary, load_bias: int, plugins: Sequence[GoPlugin]) -> GoBinary:
    """The program's tables, which also know the code of its plugins."""
    for plugin in plugins:
        binary = binary.with_module(plugin.binary, plugin.load_bias - load_bias)
    return binary


def with_plugins(
    sites: ProbeSites, load_bias: int, plugins: Sequence[GoPlugin]
) -> tuple[ProbeSites, tuple[GoPlugin, ...]]:
    """The program's places with the waits of its plugins; and the plugins.

    Places in plugins are addresses of the program as linked, as those in the program. Plugins that
    the BPF programs have no room for can't be probed.
    """
    analysed = []
    for plugin in plugins:
        code, joined = plugin.code, sites
        if code:
            joined = sites.with_waits_of(code.sites, plugin.load_bias - load_bias)
            callers = joined.semaphores.lock_callers if joined.semaphores else ()
            if len(callers) > MAX_LOCK_CALLERS or not _agree(sites, code.sites):
                code, joined = None, sites
        sites = joined
        analysed.append(replace(plugin, code=code))
    return sites, tuple(analysed)


def _agree(sites: ProbeSites, others: ProbeSites) -> bool:
    """Whether semacquire1 keeps its argument in the same place: BPF programs know one."""
    if sites.semaphores is None or others.semaphores is None:
        return True
    return sites.semaphores.address_offset == others.semaphores.address_offset


def plugin_modules(target: Target, binary: GoBinary, load_bias: int) -> tuple[PluginModule, ...]:
    """All modules of the process but the program itself; none if its memory can't be read."""
    offsets = (binary.layout.offset("moduledata", name) for name in ("next", "text"))
    next_offset, text_offset = offsets
    modules: list[PluginModule] = []
    with suppress(EbpfprofError):  # then without plugins
        memory = target.memory

        def pointer(address: int) -> int:
            return int.from_bytes(memory.read(address, _WORD_BYTES), "little")

        at = pointer(binary.module_start + load_bias + next_offset)
        while at and len(modules) < _MAX_MODULES:
            modules.append(PluginModule(at, pointer(at + text_offset)))
            at = pointer(at + next_offset)
    return tuple(modules)
