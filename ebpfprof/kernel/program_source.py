"""A BPF program before it is loaded: what is compiled, and what becomes of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from ebpfprof.errors import AttachFailed
from ebpfprof.kernel import c_facts
from ebpfprof.kernel.sources import program_text
from ebpfprof.kernel.syscalls import INSTRUCTION_BYTES

SIZES: Final = ("MAX_TARGETS", "MAX_SITES")
"""Macros that size maps, which are compiled with 1: BpfProgram.load() multiplies their rows."""
_SIZED_MAP: Final = re.compile(rf"BPF_\w+\((\w+),.*\b({'|'.join(SIZES)})\b")
_MARK: Final = c_facts.number("common/at_load.h", "AT_LOAD_MARK")

_LOOP_MASK: Final = "LOOP_MASK"  # in common/loops.h
_MAY_GOTO: Final = c_facts.number("common/loops.h", "MAY_GOTO")
# BPF_JMP | BPF_JEQ, R10: never, for that is the frame pointer. Where may_goto leads would be dead
# code without a jump, which verifiers reject.
_IF_NO_FRAME: Final = bytes([0x15, 10])

# struct bpf_insn, include/uapi/linux/bpf.h: a register and a number of 64 bits, in two slots.
_LOAD_64 = 0x18  # BPF_LD | BPF_DW | BPF_IMM
_MAP_FD = 1  # BPF_PSEUDO_MAP_FD
_LOW = slice(4, 8)
_HIGH = slice(INSTRUCTION_BYTES + 4, INSTRUCTION_BYTES + 8)


@dataclass(frozen=True, slots=True)
class ProgramSource:
    """A C file of bpf/ with the options to compile it with: all that the result depends on."""

    name: str
    options: Mapping[str, int | str]
    """Preprocessor macros."""
    functions: tuple[str, ...] = ()
    """For BpfProgram.attach_uprobes."""
    perf_functions: tuple[str, ...] = ()
    """For BpfProgram.attach_sampler."""
    own_functions: tuple[str, ...] = ()
    """For BpfProgram.run and attach_tracepoint."""
    numbers: tuple[str, ...] = ()
    """Names in the C of numbers that are known when the program is loaded (common/at_load.h)."""

    def all_functions(self) -> tuple[str, ...]:
        """All functions to compile."""
        return self.functions + self.perf_functions + self.own_functions

    def text(self) -> str:
        """The C."""
        return program_text(self.name)

    def flags(self) -> list[str]:
        """The arguments of the compiler."""
        numbers = {
            name: f"AT_LOAD({index})" for index, name in enumerate((*self.numbers, _LOOP_MASK))
        }
        macros = {**self.options, **dict.fromkeys(SIZES, 1), **numbers}
        return [f"-D{name}={value}" for name, value in macros.items()]

    def parts(self) -> list[str]:
        """All that the result depends on, beside the compiler."""
        return [self.text(), *self.flags(), *self.all_functions()]


@dataclass(frozen=True, slots=True)
class MapShape:
    """A map as the C declares it. `kind` is its enum bpf_map_type; 0 bytes: no keys or values.

    `key` and `value` are C types as BCC gives them: the name of a number's type, or a list of the
    struct's name and its fields.
    """

    name: str
    kind: int
    key_bytes: int
    value_bytes: int
    max_entries: int
    key: Any
    value: Any


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled C file. Instructions that load a map have its index in `maps`."""

    maps: tuple[MapShape, ...]
    functions: Mapping[str, bytes]
    license: str

    @classmethod
    def of_json(cls, made: Mapping[str, Any]) -> Self:
        """From what json() returned. Raises KeyError, TypeError, ValueError or AttributeError."""
        return cls(
            tuple(MapShape(**shape) for shape in made["maps"]),
            {name: bytes.fromhex(code) for name, code in made["functions"].items()},
            made["license"],
        )


def sized_maps(name: str) -> dict[str, str]:
    """Which of the SIZES the rows of a map are multiplied by, by the name of the map, for those
    maps of the C file `name` in bpf/ that have one."""
    matches = map(_SIZED_MAP.match, program_text(name).splitlines())
    return {match[1]: match[2] for match in matches if match}


def with_maps(instructions: bytes, map_of: Callable[[int], int]) -> bytes:
    """The instructions with `map_of` of each number that stands for a map in its place."""
    changed = bytearray(instructions)
    for at in _loads(changed):
        if changed[at + 1] >> 4 == _MAP_FD:
            number = int.from_bytes(changed[at + 4 : at + 8], "little")
            changed[at + 4 : at + 8] = map_of(number).to_bytes(4, "little")
    return bytes(changed)


def with_numbers(instructions: bytes, numbers: Sequence[int]) -> bytes:
    """The instructions with these numbers, of up to 64 bits, in the places of AT_LOAD(index).

    Raises AttachFailed if there is no such number.
    """
    changed = bytearray(instructions)
    for at in _loads(changed):
        pair = memoryview(changed)[at : at + 2 * INSTRUCTION_BYTES]
        index, mark = (int.from_bytes(pair[half], "little") for half in (_LOW, _HIGH))
        if pair[1] >> 4 or mark != _MARK:
            continue
        if index >= len(numbers):
            raise AttachFailed(f"The compiled BPF program has no number {index} to load.")
        value = numbers[index].to_bytes(8, "little")
        pair[_LOW], pair[_HIGH] = value[:4], value[4:]
    return bytes(changed)


def ready(
    instructions: bytes, map_of: Callable[[int], int], numbers: Sequence[int], *, may_goto: bool
) -> bytes:
    """The instructions to load: with maps, the values of ProgramSource.numbers, and loops for a
    kernel with may_goto or without (common/loops.h). Raises AttachFailed."""
    mask = (1 << 64) - 1 if may_goto else 0
    made = with_numbers(with_maps(instructions, map_of), (*numbers, mask))
    return made if may_goto else _without_may_goto(made)


def _without_may_goto(instructions: bytes) -> bytes:
    changed = bytearray(instructions)
    for at in _with_opcode(changed, _MAY_GOTO):
        changed[at : at + 2] = _IF_NO_FRAME
    return bytes(changed)


def _loads(instructions: bytearray) -> Iterator[int]:
    """Where instructions begin that load 64 bits."""
    return _with_opcode(instructions, _LOAD_64)


def _with_opcode(instructions: bytearray, opcode: int) -> Iterator[int]:
    """Where instructions begin with this opcode; that of the second slot of a load is 0."""
    opcodes = instructions[::INSTRUCTION_BYTES]
    number = opcodes.find(opcode)
    while number >= 0:
        yield number * INSTRUCTION_BYTES
        number = opcodes.find(opcode, number + 1)
