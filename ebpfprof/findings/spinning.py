"""A goroutine that runs all the time in a loop, without work: it waits for something that way."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import percent
from ebpfprof.findings.finding import Finding, Level
from ebpfprof.findings.words import part, place
from ebpfprof.findings.work import Share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ebpfprof.findings.cpu import CpuTime, HotStack
    from ebpfprof.findings.evidence import Evidence

_LEAST_DUMPS: Final = 8
_ALWAYS: Final = 0.95
"""Of the dumps: a goroutine that works also waits from time to time."""
_RUNS: Final = ("running", "runnable", "preempted")
_LEAST_PROCESSORS: Final = 0.25
"""Of a CPU: even where others want it, a loop that never waits gets that much."""
_LEAST_SAMPLES: Final = 50
_IN_FEW_PLACES: Final = 0.9
_FEW_PLACES: Final = 3
"""Instructions: a loop that computes has more, of which the profile shows ten or more."""
_LEAST_POLLING: Final = 0.5
_YIELDS: Final = frozenset({"runtime.gosched_m", "runtime.Gosched"})
_SWEEPER: Final = "runtime.bgsweep"  # it yields, too
_POLLS: Final = (
    *("sync/atomic.", "internal/runtime/atomic.", "runtime.selectnb", "runtime.chanrecv"),
    *("runtime.chansend", "runtime.empty", "runtime.full", "sync.(*Mutex).", "runtime.Gosched"),
    *("internal/sync.(*Mutex).", "sync.(*RWMutex).", "time.Now", "time.Since", "time.now"),
    *("runtime.nanotime", "runtime.walltime", "__vdso_", "runtime.procyield", "time.runtimeNow"),
)
"""What a loop calls that waits for a value, a message or a time, by beginnings of functions."""


def find(evidence: Evidence) -> Iterator[Finding]:
    """A goroutine that was never seen to wait, and a loop that takes the CPU time."""
    cpu, always = evidence.cpu_time, _always_running(evidence)
    if cpu is None or not always:
        return
    yields = cpu.where(_is_yield)
    for loop in _loops(cpu):
        is_yielding = bool(yields) and _calls_yield(evidence, loop)
        stacks = [*loop, *yields] if is_yielding else loop
        share = cpu.share(stacks)
        processors = share.value * cpu.processors
        samples = sum(one.samples for one in stacks)
        if processors < _LEAST_PROCESSORS or samples < _LEAST_SAMPLES:
            continue
        if is_yielding or _is_poll(loop):
            yield _finding(evidence, cpu, loop, share)
            return


def fine(evidence: Evidence) -> str:
    """Nothing: an idle program needs no word about it."""
    del evidence
    return ""


def _always_running(evidence: Evidence) -> set[int]:
    """The goroutines that ran or could run in nearly all dumps."""
    if len(evidence.dumps) < _LEAST_DUMPS:
        return set()
    ran = Counter(
        goroutine.goid
        for dump in evidence.dumps
        for goroutine in dump.goroutines
        if goroutine.state in _RUNS
    )
    return {goid for goid, times in ran.items() if times >= _ALWAYS * len(evidence.dumps)}


def _loops(cpu: CpuTime) -> list[list[HotStack]]:
    """The stacks by the function of the program that took the time, the most first."""
    by_function: defaultdict[str, list[HotStack]] = defaultdict(list)
    for stack in cpu.stacks:
        if (own := stack.place) is not None:
            by_function[own.function].append(stack)
    return sorted(by_function.values(), key=lambda loop: -sum(stack.ns for stack in loop))


def _is_yield(stack: HotStack) -> bool:
    """Whether a goroutine lets others run: the stack of the switch lacks that of the goroutine."""
    return not _YIELDS.isdisjoint(stack.names) and _SWEEPER not in stack.names


def _calls_yield(evidence: Evidence, loop: list[HotStack]) -> bool:
    """Whether a goroutine was seen to yield in the function of the loop."""
    own = {stack.place.function for stack in loop if stack.place}
    return any(
        goroutine.frames
        and goroutine.frames[0].function == "runtime.Gosched"
        and any(frame.function in own for frame in goroutine.frames[1:2])
        for dump in evidence.dumps
        for goroutine in dump.goroutines
    )


def _is_poll(loop: list[HotStack]) -> bool:
    """Whether it stays at a few instructions, or mostly asks whether something has happened."""
    total = sum(stack.samples for stack in loop)
    places: Counter[int] = Counter()
    asks = 0
    for stack in loop:
        places[stack.address] += stack.samples
        asks += stack.samples if stack.frames[0].function.startswith(_POLLS) else 0
    few = sum(number for _, number in places.most_common(_FEW_PLACES))
    return few >= _IN_FEW_PLACES * total or asks >= _LEAST_POLLING * total


def _finding(evidence: Evidence, cpu: CpuTime, loop: list[HotStack], share: Share) -> Finding:
    hottest = cpu.hottest(loop)
    assert hottest is not None
    where = place(hottest.place)
    return Finding(
        kind="spinning",
        level=Level.SLOW,
        title=f"Spinning: a loop in {where} takes {part(share)} of the CPU time.",
        lines=(
            f"Its goroutine never waited in {len(evidence.dumps)} samples; it uses "
            f"{percent(share.value * cpu.processors)} of a CPU.",
            "Let it wait for a channel, a sync.Cond or a timer.",
        ),
        share=share.value,
        error=share.error,
        next=f"attach --pid {evidence.program.pid} --profile cpu",
        place=hottest.place,
    )
