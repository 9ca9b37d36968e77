"""runtime.systemstack, which switches stacks: real threads are caught at each of its instructions.

The walk in Python, which does the same as the kernel's, must lead from there to its caller.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from ebpfprof.goruntime.process import GoTarget
from ebpfprof.process.mappings import MappedObjects
from ebpfprof.process.process import Target as Process
from ebpfprof.profilers.cpu.partial_samples import MappedCode
from ebpfprof.profilers.cpu.unwinder import (
    Cursor,
    Ending,
    GoState,
    ProcessRules,
    RuleNumbers,
    StackPieces,
    unwind,
)
from symbolizer.x86.disasm import decode
from tests.builds import versions
from tests.go_target import inspect
from tests.kernel.debugger import traced
from tests.kernel.unharmed import checker

# Collections make the runtime call systemstack on the thread's own stack, too.
MANY_COLLECTIONS: Final = {"GODEBUG": "asyncpreemptoff=1", "GOGC": "20"}
TIMES: Final = 2


@dataclass(frozen=True, slots=True)
class Memory(StackPieces):
    """The memory of a stopped process, in place of copies of its stacks."""

    path: Path

    def word(self, address: int) -> int | None:
        with self.path.open("rb") as file:
            try:
                return int.from_bytes(os.pread(file.fileno(), 8, address), "little")
            except OSError:
                return None

    def known(self, address: int) -> int:
        found = self.word(address)
        assert found is not None
        return found


def state_of(memory: Memory, go: GoTarget, fs_base: int) -> GoState:
    """What the runtime's records say of the thread that has this FS base."""

    def load(struct: str, name: str, address: int) -> int:
        return memory.known(address + go.binary.layout.offset(struct, name))

    m = load("g", "m", memory.known(fs_base + go.g_offset()))
    curg = load("m", "curg", m)
    if not curg:
        return GoState()
    return GoState(
        curg,
        memory.known(curg),
        memory.known(curg + 8),
        load("g", "sched.sp", curg),
        load("g", "sched.pc", curg),
    )


@pytest.mark.parametrize("minor", versions("1.19", "1.27"))
def test_systemstack_leads_to_its_caller(minor: str) -> None:
    with (
        checker("procs", "spread", minor=minor, env=MANY_COLLECTIONS) as target,
        Process(target.pid) as process,
        MappedObjects(process) as objects,
        traced(target.pid) as tracing,
    ):
        go = inspect(process)
        binary, memory = go.binary, Memory([], Path(f"/proc/{target.pid}/mem"))
        (function,) = binary.functions_named("runtime.systemstack")
        code = decode(
            binary.elf.read(function.entry, function.end - function.entry), function.entry
        )
        crash = next(each.address for each in code if each.refers_to is not None)
        rules = ProcessRules(MappedCode(objects, go), RuleNumbers(1 << 14))
        for address in [each.address for each in code if each.address < crash] * TIMES:
            answer = tracing.ask(f"catch {address:x}", "caught ")
            pc, sp, bp, fs_base, _ = (int(word, 16) for word in answer.split()[1:])
            assert pc == address
            state = state_of(memory, go, fs_base)
            pcs, ending = unwind(Cursor(pc, sp, bp, True), state, memory, rules, [])

            names = [found.name if (found := binary.function_at(pc - 1)) else "?" for pc in pcs]
            reported = f"at {address - function.entry:#x}: {' < '.join(names)}"
            assert ending in (Ending.WHOLE, Ending.TOO_DEEP), reported
            assert "?" not in names, reported
            (call,) = decode(binary.elf.read(pcs[1] - 5, 5), pcs[1] - 5) if pcs[1:] else (None,)
            assert call is not None, reported
            assert call.is_call, reported
            assert call.target == function.entry, reported
