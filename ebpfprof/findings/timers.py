"""Timers: so many of them that setting and firing them takes much of the CPU time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import counted
from ebpfprof.findings.finding import Finding, Level
from ebpfprof.findings.words import part, place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ebpfprof.findings.cpu import HotStack
    from ebpfprof.findings.evidence import Evidence

_LEAST_SHARE: Final = 0.15
"""Of the CPU time."""
_LEAST_PROCESSORS: Final = 0.1
"""Of a CPU: below, timers cost nothing."""
_MANY: Final = 10_000
"""Timers: with fewer, a heap of them is quick, and a large share is that of an idle program."""
_WORK: Final = (
    *("runtime.(*timers).", "runtime.(*timer).", "runtime.siftupTimer", "runtime.siftdownTimer"),
    *("runtime.addtimer", "runtime.deltimer", "runtime.modtimer", "runtime.resettimer"),
    *("runtime.runtimer", "runtime.checkTimers", "runtime.adjusttimers", "runtime.dodeltimer"),
    *("runtime.doaddtimer", "runtime.runOneTimer", "runtime.cleantimers", "runtime.moveTimers"),
)
"""Functions of the runtime by their beginnings, Go 1.19 to 1.27 (runtime/time.go)."""
_MAKERS: Final = frozenset(
    {
        *("time.After", "time.NewTimer", "time.NewTicker", "time.Tick", "time.AfterFunc"),
        *("time.(*Timer).Reset", "time.(*Timer).Stop", "time.(*Ticker).Stop", "time.Sleep"),
        *("time.newTimer", "time.startTimer", "time.stopTimer", "time.resetTimer"),
    }
)


def find(evidence: Evidence) -> Iterator[Finding]:
    """Very many timers that take much CPU time, with the function that sets most of them."""
    cpu, runtime = evidence.cpu_time, evidence.runtime
    timers = runtime.after.timers if runtime else None
    if cpu is None or timers is None or timers < _MANY or cpu.processors < _LEAST_PROCESSORS:
        return
    share = cpu.share(cpu.where(_is_timer))
    if share.least < _LEAST_SHARE:
        return
    setting = cpu.hottest(cpu.where(lambda stack: not _MAKERS.isdisjoint(stack.names)))
    uses_after = any("time.After" in stack.names for stack in cpu.stacks)
    lines = [f"Most are set in {place(setting.place)}."] if setting else []
    if uses_after:
        lines.append("time.After sets a new one for each call: use one timer, and Reset.")
    yield Finding(
        kind="timers",
        level=Level.SLOW,
        title=f"Timers: {counted(timers, 'timer')} take {part(share)} of the CPU time.",
        lines=tuple(lines),
        share=share.value,
        error=share.error,
        next=f"attach --pid {evidence.program.pid} --profile cpu",
        place=setting.place if setting else None,
    )


def fine(evidence: Evidence) -> str:
    """Nothing: few programs have many timers."""
    del evidence
    return ""


def _is_timer(stack: HotStack) -> bool:
    return not _MAKERS.isdisjoint(stack.names) or any(
        name.startswith(_WORK) for name in stack.names
    )
