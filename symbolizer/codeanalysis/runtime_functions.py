"""The runtime functions that probes need, and the calls of some, looked up once."""

from collections.abc import Iterable
from typing import Final

from symbolizer.errors import GoTableError
from symbolizer.go.binary import Function, GoBinary
from symbolizer.x86.disasm import Instruction, decode

_UNKNOWN_CODE: Final = (
    "{}: this program was compiled in an unknown way. Please report its Go version and build flags "
    "(`go version -m FILE`)."
)


def unknown_code(what: str) -> GoTableError:
    """Return the error for machine code that no known Go version compiles; `what` is the detail."""
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
        self._names: dict[int, list[str]] = {}

    def functions(self, *names: str) -> list[Function]:
        """Return the functions of these names, which were given to the constructor."""
        return [function for name in names for function in self._functions[name]]

    def calls(self, name: str) -> list[int]:
        """Return the addresses of all calls of the function."""
        return [pc for function in self._functions[name] for pc in self._calls[function.entry]]

    def names_at(self, pc: int) -> list[str]:
        """Return the logical functions at `pc`, innermost first."""
        if pc not in self._names:
            self.look_up([pc])
        return self._names[pc]

    def look_up(self, pcs: Iterable[int]) -> None:
        """Look up together what names_at() returns of these addresses, which takes less time."""
        for pc, frames in self.binary.frames_many(pcs).items():
            self._names[pc] = [frame.function for frame in frames]

    def decoded(self, function: Function) -> tuple[Instruction, ...]:
        """Return the function's instructions."""
        code = self.binary.elf.read(function.entry, function.end - function.entry)
        return decode(code, function.entry)
