"""Go plugins that a program has opened: modules with their own copy of the runtime's code.

The runtime keeps its modules in a list that begins with runtime.firstmoduledata (Go 1.19 to 1.27,
runtime/symtab.go). A plugin's functions call the copies of gopark and ready in the plugin's own
file, and their names are in the plugin's own tables.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.errors import EbpfprofError
from ebpfprof.process.mappings import MappedObjects
from ebpfprof.process.memory import Memory
from symbolizer import GoBinary, SymbolizerError

if TYPE_CHECKING:
    from ebpfprof.process.process import Target

_MAX_MODULES: Final = 64
_WORD_BYTES: Final = 8


class PluginModule(NamedTuple):
    """A plugin in the runtime's list: runtime addresses of its moduledata and of its text."""

    start: int
    text: int


@dataclass(frozen=True, slots=True)
class GoPlugin:
    """An open plugin. `load_bias` is runtime address minus linked address."""

    path: str
    binary: GoBinary
    load_bias: int


def open_plugins(target: Target, binary: GoBinary, load_bias: int) -> tuple[GoPlugin, ...]:
    """The plugins that a process of the program `binary` has open, in the order of opening.

    Their files are open as long as `target`. Those that can't be read are missing.
    """
    modules = plugin_modules(target, binary, load_bias)
    if not modules:
        return ()
    objects = target.held.enter_context(MappedObjects(target))
    found = []
    for module in modules:
        mapped = objects.at(module.text)
        if mapped is None or mapped.elf is None:
            continue
        with suppress(SymbolizerError, struct.error):
            code = GoBinary.open(mapped.elf, allow_unknown_version=True)
            is_module = code.module_start + mapped.bias == module.start
            if is_module and code.layout is binary.layout:
                found.append(GoPlugin(mapped.mapping.filename, code, mapped.bias))
    return tuple(found)


def plugin_modules(target: Target, binary: GoBinary, load_bias: int) -> list[PluginModule]:
    """All modules of the process but the program itself; none if its memory can't be read."""
    offsets = (binary.layout.offset("moduledata", name) for name in ("next", "text"))
    next_offset, text_offset = offsets
    found: list[PluginModule] = []
    with suppress(EbpfprofError), Memory(target) as memory:

        def pointer(address: int) -> int:
            return int.from_bytes(memory.read(address, _WORD_BYTES), "little")

        at = pointer(binary.module_start + load_bias + next_offset)
        while at and len(found) < _MAX_MODULES:
            found.append(PluginModule(at, pointer(at + text_offset)))
            at = pointer(at + next_offset)
    return found
