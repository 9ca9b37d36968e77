"""The gates of allocations, in every Go version and build mode, and what is refused."""

from __future__ import annotations

import pytest

from symbolizer import ElfFile, GoBinary, GoTableError
from symbolizer.codeanalysis.allocation_gates import AllocationGate, allocation_gates
from symbolizer.x86.disasm import decode, reachable, successors
from tests.builds import pairs
from tests.unit.symbolizer.go_programs import binary, only, program

_REGISTERS = {f"r{n}" for n in range(8, 14)} | {"rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rsp"}


def number_of_gates(minor: str) -> int:
    version = int(minor.split(".")[1])
    return 1 if version < 24 else 5 if version < 27 else 21


@pytest.mark.parametrize("build", pairs())
def test_each_call_of_the_profile_has_a_gate(build: tuple[str, str]) -> None:
    found = binary(*build)
    gates = allocation_gates(found)
    assert len(gates) == number_of_gates(build[0])
    for gate in gates:
        function = found.function_at(gate.pc)
        assert function is not None
        assert function.name.startswith("runtime.mallocgc")
        code = decode(found.elf.read(function.entry, function.end - function.entry), function.entry)
        jump = next(each for each in code if each.address == gate.pc)
        assert jump.is_jump
        assert jump.falls_through
        assert jump.emulated
        calls = {each.address for each in code if each.is_call}
        assert calls & reachable(successors(code), [gate.pc])
        check_sources(gate)


def check_sources(gate: AllocationGate) -> None:
    for source in (gate.object, gate.size):
        assert source.register in _REGISTERS | {""}
        assert 0 <= source.offset < 1 << 16
    assert gate.object.register
    if not gate.size.register:  # only in functions for one size class each
        assert gate.size.offset in range(8, 129)


def test_without_the_jumps_there_is_not_a_gate() -> None:
    data = bytearray(program())
    elf, large = binary().elf, only(binary(), "runtime.mallocgcLarge")
    gate = next(g for g in allocation_gates(binary()) if large.entry <= g.pc < large.end)
    code = decode(elf.read(large.entry, large.end - large.entry), large.entry)
    for each in [each for each in code if each.address >= gate.pc and each.is_jump][:2]:
        at = elf.vaddr_to_offset(each.address)
        data[at : at + each.size] = b"\x90" * each.size
    with pytest.raises(GoTableError, match=r"compiled in an unknown way"):
        allocation_gates(GoBinary.open(ElfFile.from_bytes(bytes(data))))


def test_a_way_around_the_gate_is_refused() -> None:
    """A return right after the object is ready, before the gate: not every object passes it."""
    data = bytearray(program())
    large = only(binary(), "runtime.mallocgcLarge")
    code = decode(binary().elf.read(large.entry, large.end - large.entry), large.entry)
    ready = only(binary(), "runtime.publicationBarrier").entry
    call = next(each for each in code if each.target == ready)
    behind = next(each for each in code if each.address == call.end)
    at = binary().elf.vaddr_to_offset(call.end)
    # je +1; ret: ready objects may leave by it
    data[at : at + behind.size] = b"\x74\x01\xc3".ljust(behind.size, b"\x90")
    with pytest.raises(GoTableError, match=r"compiled in an unknown way"):
        allocation_gates(GoBinary.open(ElfFile.from_bytes(bytes(data))))


def test_an_object_that_is_not_reported_is_refused() -> None:
    """The register of the object is written from one that a call or arithmetic has changed."""
    # At the gate of mallocgcLarge: jl 2; mov rsi,[rip]; cmp; je; mov rax,[rsp+..]; mov rbx,...
    data = bytearray(program())
    elf = binary().elf
    large = only(binary(), "runtime.mallocgcLarge")
    code = decode(elf.read(large.entry, large.end - large.entry), large.entry)
    profile = only(binary(), "runtime.profilealloc").entry
    call = next(each for each in code if each.target == profile)
    moves = [each for each in code if each.address < call.address and "rbx" in each.written]
    at = elf.vaddr_to_offset(moves[-1].address)
    assert moves[-1].size >= 3
    data[at : at + moves[-1].size] = b"\x48\x31\xdb".ljust(moves[-1].size, b"\x90")  # xor rbx, rbx
    with pytest.raises(GoTableError, match=r"does not show where its allocated object is"):
        allocation_gates(GoBinary.open(ElfFile.from_bytes(bytes(data))))
