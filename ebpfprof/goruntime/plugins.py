"""Go plugins that a program has opened: modules with their own copy of the runtime's code.

The runtime keeps its modules in a list that begins with runtime.firstmoduledata (Go 1.19 to 1.27,
runtime/symtab.go). A plugin's functions call the copies of gopark and ready in the plugin's own
file, where there are no probes, and their names are in the plugin's own tables.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import listed, printable
from ebpfprof.errors import EbpfprofError
from ebpfprof.process.memory import Memory

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget

_MAX_MODULES: Final = 64
_WORD_BYTES: Final = 8


def plugins(go: GoTarget) -> tuple[str, ...]:
    """The paths of the plugins that the process has open, in the order in which it opened them.

    Empty if its memory can't be read.
    """
    layout = go.binary.layout
    next_offset, text_offset = (layout.offset("moduledata", name) for name in ("next", "text"))
    paths: list[str] = []
    with suppress(EbpfprofError), Memory(go.target) as memory:

        def pointer(address: int) -> int:
            return int.from_bytes(memory.read(address, _WORD_BYTES), "little")

        module = pointer(go.binary.module_start + go.load_bias + next_offset)
        while module and len(paths) < _MAX_MODULES:
            paths.append(_path_at(go, pointer(module + text_offset)))
            module = pointer(module + next_offset)
    return tuple(dict.fromkeys(path for path in paths if path))


def plugin_warning(go: GoTarget, *, has_probes: bool) -> str:
    """A sentence about what is missing because of plugins, "" without any.

    With `has_probes`, waits are recorded; else stacks are only read. See plugins().
    """
    paths = [printable(path) for path in plugins(go)]
    if not paths:
        return ""
    is_one = len(paths) == 1
    are_plugins = "it is a Go plugin" if is_one else "they are Go plugins"
    if has_probes:
        its = "its" if is_one else "their"
        return (
            f"Waits in {listed(paths)} are not recorded, and stacks lack {its} functions: "
            f"{are_plugins} with a separate copy of the runtime's code."
        )
    return f"Stacks lack the functions of {listed(paths)}: {are_plugins}."


def _path_at(go: GoTarget, address: int) -> str:
    """The file that is mapped at the runtime address; "" if none is."""
    lines = go.target.executable_lines()
    return next((line.path for line in lines if line.start <= address < line.limit), "")
