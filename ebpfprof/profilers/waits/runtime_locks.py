"""Contention for the runtime's own locks: the data for runtime_locks.h, and its probes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget

FUNCTIONS: Final = ("on_thread_sleep", "on_thread_wake", "on_runtime_unlock")
MAX_SLEEPERS: Final = 1 << 14  # Go runs 10,000 threads at most, unless the program raises that

# In the order of the kernel's struct pt_regs (arch/x86/include/asm/ptrace.h), 8 bytes each.
_REGISTERS: Final = (
    *("r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8"),
    *("rax", "rcx", "rdx", "rsi", "rdi"),
)


class Probe(NamedTuple):
    """A function of the BPF program, the address of its probe, and at a call the return address."""

    function: str
    pc: int
    return_pc: int = 0


def layout_fields(go: GoTarget) -> dict[str, int]:
    """The fields of struct runtime_layout; {} for a target without runtime lock sites."""
    sites, layout = go.runtime_locks, go.binary.layout
    if sites is None:
        return {}
    return {
        "system_stack_pc": sites.system_stack_pc + go.load_bias,
        "more_stack_pc": sites.more_stack_pc + go.load_bias,
        "start_ticks_offset": layout.offset("m", "mWaitList.startTicks"),
        "semaphore_offset": layout.offset("m", "mOS.waitsema"),
        "woken_offset": 8 * _REGISTERS.index(sites.wake_register),
    }


def probes(go: GoTarget) -> list[Probe]:
    """The probes of one target."""
    sites = go.runtime_locks
    if sites is None:
        return []
    return [
        Probe("on_thread_wake", sites.wake_pc),
        Probe("on_thread_sleep", sites.sleep_pc),
        *(Probe("on_runtime_unlock", unlock.call_pc, unlock.return_pc) for unlock in sites.unlocks),
    ]
