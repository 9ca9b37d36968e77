"""Probe addresses for what a program annotates by runtime/trace, found in the machine code.

NewTask, Task.End, WithRegion and Log call functions of the runtime, which return at once while Go's
tracer is off. The compiler can't inline these: package runtime has them, under names of
runtime/trace (go:linkname). A program that does not annotate does not link them.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from symbolizer.x86.disasm import decode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from symbolizer.go.binary import Function, GoBinary
    from symbolizer.x86.disasm import Instruction


class AnnotationMoment(Enum):
    """What a function reports; the comments show what is in registers (runtime/trace, Go 1.19 to
    1.27)."""

    TASK_BEGIN = "runtime/trace.userTaskCreate"  # RAX: task, RBX: its parent, RCX and RDI: type
    TASK_END = "runtime/trace.userTaskEnd"  # RAX: task
    REGION_BEGIN = "runtime/trace.userRegion"  # RAX: task, RBX: 0, or 1 for its end, RCX, RDI: type
    LOG = "runtime/trace.userLog"  # RAX: task, RBX, RCX: category, RDI, RSI: message


class AnnotationSite(NamedTuple):
    """An address as linked, and what is reported there."""

    moment: AnnotationMoment
    pc: int


class AnnotationSites(NamedTuple):
    """All sites of a program, and the functions that had no place for one."""

    sites: tuple[AnnotationSite, ...]
    missing: tuple[str, ...]


UNSEEN: Final = ("runtime/trace.StartRegion", "runtime/trace.Logf")
"""Functions that call the runtime only while Go's tracer is on."""


def annotation_sites(binary: GoBinary) -> AnnotationSites:
    """Find the places to probe. Raises GoTableError for corrupt tables."""
    functions = binary.functions_by_name({moment.value for moment in AnnotationMoment})
    sites, missing = [], []
    for moment in AnnotationMoment:
        for function in functions[moment.value]:
            pc = before_frame(_decoded(binary, function))
            if pc is None:
                missing.append(moment.value)
            else:
                sites.append(AnnotationSite(moment, pc))
    return AnnotationSites(tuple(sites), tuple(missing))


def before_frame(instructions: Iterable[Instruction]) -> int | None:
    """The instruction behind the stack check that begins the frame; None if there is no check.

    Behind the check, the function does not begin again on a larger stack. Before the frame, all
    arguments are still in registers, and the return address is on top of the stack.
    """
    is_checked = False
    for instruction in instructions:
        if instruction.is_call:
            return None
        if "rsp" in instruction.written:
            return instruction.address if is_checked else None
        is_checked = is_checked or instruction.is_jump
    return None


def _decoded(binary: GoBinary, function: Function) -> tuple[Instruction, ...]:
    code = binary.elf.read(function.entry, function.end - function.entry)
    return decode(code, function.entry)
