"""Names of locks: by the package variable that has them, or by the functions that lock them.

A heap address has no name. But a function can only lock a lock that it can name: in its receiver,
parameters and variables, in the package variables that its code loads, and in their fields, except
unexported fields of other packages. The name that all functions which lock the same lock share is
the lock's name.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from symbolizer.dwarf.constants import (
    AT_TYPE,
    AT_VARIABLE_PARAMETER,
    TAG_FORMAL_PARAMETER,
    TAG_LEXICAL_BLOCK,
    TAG_POINTER,
    TAG_STRUCTURE,
    TAG_SUBPROGRAM,
    TAG_VARIABLE,
)
from symbolizer.dwarf.entries import Die, Dwarf
from symbolizer.errors import SymbolizerError
from symbolizer.go.binary import GoBinary
from symbolizer.locks.types import (
    LockName,
    Names,
    Place,
    Types,
    is_struct,
    package_of,
    variable_die,
)
from symbolizer.locks.variables import StaticPointers, Symbol, Symbols, is_data, loads

_MAX_STATIC_DEPTH = 2
_MADE_UP = "."  # ".autotmp_3", the compiler's own, in programs built without optimization
_MAX_SHOWN = 4
_MAX_CODE_BYTES = 1 << 20

# From Go 1.24 on sync.Mutex has an internal/sync.Mutex, which internal/sync itself uses, too.
_WANTED: Final[dict[str, tuple[str, ...]]] = {"sync.Mutex": ("sync.Mutex", "internal/sync.Mutex")}

# Go's linker moves all types there (movetomodule in cmd/link dwarf.go, Go 1.19 to 1.27).
_UNIT_OF_TYPES = "runtime"

_RECEIVER = re.compile(r"\(\*([^()]+)\)")
_CLOSURE = re.compile(r"((\.|-)(func|gowrap|deferwrap|range)?\d+)+$")

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Caller:
    """A function that called Lock or Unlock itself: its name as in `Frame`, and the call.

    `pc` is the address of the call as linked, or the return address minus 1.
    """

    function: str
    pc: int


@dataclass(frozen=True, slots=True)
class _Nameable:
    """Locks that a function can name: those not behind pointers if there are any, and all."""

    near: list[Names]
    wide: list[Names]


class LockNames:
    """Names of a program's locks. Reads nothing before the first lookup.

    A stripped program gives no names, nor does one with corrupt DWARF.
    """

    def __init__(self, binary: GoBinary) -> None:
        self._binary = binary
        self._elf = binary.elf
        self._symbols = Symbols(binary.elf)
        self._pointers = StaticPointers(binary.elf)
        self._dwarf = Dwarf(binary.elf)
        self._types = Types(self._dwarf)
        self._variables: dict[Symbol, Die | None] = {}
        self._functions: dict[tuple[str, str], _Nameable] = {}

    def variable(self, address: int) -> str | None:
        """Return the name of the part of a package variable that is at the address, as linked.

        "main.shards[3].mu"; "main.shards+0x38" if the program has symbols but no DWARF; None if no
        variable is there.
        """
        if not is_data(self._elf, address):
            return None
        if self._dwarf.present:
            place = self._or_none(partial(self._place, address, _MAX_STATIC_DEPTH))
            if place is not None:
                return _with_rest(place.path, place.rest)
        symbol = self._or_none(partial(self._symbols.variable_at, address))
        return None if symbol is None else _with_rest(symbol.name, address - symbol.address)

    def place(self, address: int) -> str | None:
        """Return where in the program's data the address is, as linked: ".noptrbss+0x40".

        For a package variable of a stripped program; None outside of the program's data.
        """
        if not is_data(self._elf, address):
            return None
        return next(
            (
                f"{section.name}+{address - section.vaddr:#x}"
                for section in self._elf.sections.values()
                if section.name
                and section.vaddr
                and section.vaddr <= address < section.vaddr + section.size
            ),
            None,
        )

    def field(self, callers: Sequence[Caller], kind: str) -> str | None:
        """Return the name of a lock on the heap, derived from the functions that lock it.

        `kind` is "sync.Mutex" or "sync.RWMutex". "main.Cache.mu"; "main.Cache.{mu,other}" if it is
        one of these; "main.worker.mu" for a variable of a function; None if no name is found.
        """
        if not self._dwarf.present:
            return None
        candidates = [self._or_none(partial(self._nameable, caller, kind)) for caller in callers]
        useful = [candidate for candidate in candidates if candidate is not None and candidate.near]
        return _text(
            _in_common([nameable.near for nameable in useful])
            or _in_common([rule.wide for rule in useful])
        )

    def _or_none(self, ask: Callable[[], _T]) -> _T | None:
        """Call `ask`; None if the tables are corrupt or too large. Then only a name is missing."""
        try:
            with self._elf.allowance:
                return ask()
        except SymbolizerError:
            return None

    def _place(self, address: int, depth: int) -> Place | None:
        """Return the place in a package variable or behind its pointer; the path has its name."""
        symbol = self._symbols.variable_at(address)
        if symbol is not None:
            variable = self._variable(symbol)
            if variable is None:
                return None
            inner = self._types.place(self._types.of(variable), address - symbol.address)
            return Place(symbol.name + inner.path, inner.type, inner.rest)
        for value, word in self._pointers.near(address) if depth else ():
            holder = self._place(word, depth - 1)
            if holder is None or holder.rest:
                continue
            count = 1 if holder.type.tag == TAG_POINTER else self._word(word + 8)
            element = self._types.element(holder.type, count, address - value)
            if element is not None:
                return Place(holder.path + element.path, element.type, element.rest)
        return None

    def _word(self, address: int) -> int:
        return int.from_bytes(self._elf.read(address, 8), "little")

    def _variable(self, symbol: Symbol) -> Die | None:
        if symbol not in self._variables:
            self._variables[symbol] = variable_die(self._dwarf, symbol)
        return self._variables[symbol]

    def _nameable(self, caller: Caller, kind: str) -> _Nameable:
        """Return the locks of a kind that a function can name; none if it can name any lock."""
        key = caller.function, kind
        if key not in self._functions:
            wanted = _WANTED.get(kind, (kind,))
            self._functions[key] = self._read_nameable(caller, wanted)
        return self._functions[key]

    def _read_nameable(self, caller: Caller, wanted: Sequence[str]) -> _Nameable:
        package = package_of(caller.function)
        if not package:
            # A wrapper of a type without a name: "go:(*struct { sync.Mutex }).Lock".
            return _Nameable([], [])
        owner = _CLOSURE.sub("", caller.function)
        holders: list[tuple[Die, str]] = []
        for variable in self._variables_of(caller.function, package):
            kind = self._types.of(variable)
            if variable.name.startswith("&"):
                # It has escaped to the heap: the stack has a pointer to it.
                kind = self._types.pointee(kind) or kind
            elif self._is_any_lock(variable, kind, wanted):
                return _Nameable([], [])
            holder = self._types.pointee(kind) or kind
            holders.append((holder, f"{owner}.{variable.name.removeprefix('&')}"))
        for symbol in self._package_variables(caller):
            pointer = self._variable(symbol)
            target = None if pointer is None else self._types.pointee(self._types.of(pointer))
            if target is not None:
                holders.append((target, symbol.name))
        nameable = self._locks(holders, wanted, package)
        if not nameable.near:
            receivers = self._receivers(caller.function, package)
            nameable = self._locks([(kind, "") for kind in receivers], wanted, package)
        return nameable

    def _package_variables(self, caller: Caller) -> Iterator[Symbol]:
        """Yield the package variables that a function loads, even where it is inlined."""
        code = self._binary.function_at(caller.pc)
        if code is None:
            return
        text = self._elf.read(code.entry, min(code.end - code.entry, _MAX_CODE_BYTES))
        accesses = loads(self._elf, code.entry, text)
        frames = self._binary.frames_many(pc for pc, _ in accesses)
        for pc, address in accesses:
            if any(frame.function == caller.function for frame in frames[pc]):
                symbol = self._symbols.variable_at(address)
                if symbol is not None:
                    yield symbol

    def _locks(
        self, holders: Sequence[tuple[Die, str]], wanted: Sequence[str], package: str
    ) -> _Nameable:
        own, behind = (
            dict.fromkeys(
                names for kind, name in holders for names in read(kind, wanted, package, name)
            )
            for read in (self._types.locks, self._types.behind_pointers)
        )
        return _Nameable(list(own or behind), list(own | behind))

    def _variables_of(self, function: str, package: str) -> Iterator[Die]:
        """Yield the variables of a function, and its named parameters and results."""
        for die in self._dwarf.find(function, (TAG_SUBPROGRAM,), package):
            for child in self._dwarf.children(die, (TAG_LEXICAL_BLOCK,)):
                if (
                    child.tag in (TAG_FORMAL_PARAMETER, TAG_VARIABLE)
                    and AT_TYPE in child.values
                    and not child.name.startswith("~")
                ):
                    yield child

    def _is_any_lock(self, variable: Die, kind: Die, wanted: Sequence[str]) -> bool:
        """Whether it points to an arbitrary lock: a parameter, or a variable of the compiler's."""
        is_result = bool(variable.values.get(AT_VARIABLE_PARAMETER))
        is_parameter = variable.tag == TAG_FORMAL_PARAMETER and not is_result
        if not is_parameter and not variable.name.startswith(_MADE_UP):
            return False
        target = self._types.pointee(kind)
        return self._types.name_of(variable) == "sync.Locker" or (
            kind.tag == TAG_POINTER and target is not None and target.name in wanted
        )

    def _receivers(self, function: str, package: str) -> list[Die]:
        """Return the receiver's type, by name: a closure may lack it among its variables."""
        names = _RECEIVER.findall(function)
        if not names:
            return []
        name = f"{package}.{names[-1]}"
        dies = self._dwarf.find(name, (TAG_STRUCTURE,), _UNIT_OF_TYPES)
        return [die for die in dies if is_struct(die)]


def _with_rest(name: str, rest: int) -> str:
    return f"{name}+{rest:#x}" if rest else name


def _in_common(callers: Sequence[Sequence[Names]]) -> list[LockName]:
    """Return the names that all callers share for a lock; of nested types only the outermost."""
    if not callers:
        return []
    known = [{name for names in caller for name in names} for caller in callers]
    common = set.intersection(*known)
    inner: set[LockName] = set()
    for caller in callers:
        for names in caller:
            inner.update([name for name in names if name in common][1:])
    ordered = dict.fromkeys(name for names in callers[0] for name in names)
    return [name for name in ordered if name in common - inner]


def _text(names: Sequence[LockName]) -> str | None:
    if len(names) < 2:
        return str(names[0]) if names else None
    if len({name.base for name in names}) == 1:
        paths = [name.path.removeprefix(".") for name in names[:_MAX_SHOWN]]
        more = ["..."] if len(names) > _MAX_SHOWN else []
        return f"{names[0].base}.{{{','.join(paths + more)}}}"
    return f"{{{','.join(map(str, names))}}}" if len(names) <= _MAX_SHOWN else None
