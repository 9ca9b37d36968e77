"""The functions of the Go runtime that matter to probes, and the calls of some: looked up once."""

from collections.abc import Iterable
from typing import Final

from symbolizer.errors import GoTableError
from symbolizer.go.binary import Function, GoBinary
from symbolizer.x86.disasm import Instruction, decode

_UNKNOWN_CODE: Final = (
    "{}: this program was compiled in a way that is not known here. Please report its Go version "
    "and build flags (`go version -m FILE`)."
)


def unknown_code(what: str) -> GoTableError:
    """The error that says what about the machine code is not as any known Go compiles it."""
    return GoTableError(_UNKNOWN_CODE.format(what))


class RuntimeCode:
    """A binary's functions by name and the calls of some of them."""

    def __init__(self, binary: GoBinary, *, called: Iterable[str], others: Iterable[str]) -> None:
        """Look up the functions `called`, with all calls of them, and `others`, without.

        Raises GoTableError for corrupt tables.
        """
        self.binary = binary
        called = tuple(called)
        self._functions = binary.functions_by_name({*called, *others})
        self._calls = binary.call_sites(*(f for name in called for f in self._functions[name]))

    def functions(self, *names: str) -> list[Function]:
        """The functions of these names, which must be among those looked up."""
        return [function for name in names for function in self._functions[name]]

    def calls(self, name: str) -> list[int]:
        """Addresses of all calls of the function."""
        return [pc for function in self._functions[name] for pc in self._calls[function.entry]]

    def names_at(self, pc: int) -> list[str]:
        """The logical functions that the instruction at `pc` belongs to, innermost first."""
        return [frame.function for frame in self.binary.frames(pc)]

    def decoded(self, function: Function) -> tuple[Instruction, ...]:
        """The function's instructions."""
        code = self.binary.elf.read(function.entry, function.end - function.entry)
        return decode(code, function.entry)
