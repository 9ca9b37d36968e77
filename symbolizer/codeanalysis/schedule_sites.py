"""Probe addresses for all that the scheduler does with goroutines, found in the machine code.

The functions, and on which stack they run, are those of runtime/proc.go, netpoll.go, coro.go,
mgc.go and mgcmark.go, Go 1.19 to 1.27. A function that a version does not have, that a program does
not link or that a profile-guided build inlined has no site: what it does is then missing, or
inferred from what follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from symbolizer.codeanalysis.entry_sites import at_entry, behind_check
from symbolizer.codeanalysis.runtime_functions import RuntimeCode, unknown_code
from symbolizer.errors import GoTableError
from symbolizer.go.binary import Function, GoBinary
from symbolizer.x86.call_sites import CALL_BYTES


class ScheduleMoment(Enum):
    """What happens at a site.

    The comments show what is in registers besides R14, which has a thread's g0, or the goroutine.
    """

    PARK = "park"  # RAX: the goroutine that will wait
    SUSPEND = "suspend"  # RAX: the goroutine that waits until the collector has seen its stack
    READY = "ready"  # RAX: the goroutine that was woken
    NET_READY = "net_ready"  # RBX: the pollDesc, ECX: 'r', 'w' or their sum
    RUN = "run"  # RAX: the goroutine that runs from now on
    CREATE = "create"  # RBX: the new goroutine
    EXIT = "exit"  # RAX: the goroutine that ends
    YIELD = "yield"  # RAX: the goroutine that goes back to the run queue; BL: made to, Go 1.22 on
    PREEMPT = "preempt"  # RAX: the goroutine that is made to go back to the run queue
    SWITCH = "switch"  # RAX: the goroutine that hands over to the other one of its coroutine
    GC_BEGIN = "gc_begin"  # R14: the goroutine
    GC_END = "gc_end"  # R14: the goroutine
    STOP_WORLD = "stop_world"  # AL: the reason, Go 1.21 on
    START_WORLD = "start_world"
    ASSIST = "assist"  # RAX: the goroutine that marks for the collector
    ASSIST_END = "assist_end"


class ScheduleSite(NamedTuple):
    """An address as linked, and what happens there."""

    moment: ScheduleMoment
    pc: int


@dataclass(frozen=True, slots=True)
class ScheduleSites:
    """All sites of a program, by address, and the functions that had no place for one.

    `tells_preemption`: where goroutines yield, BL says whether they were made to.
    """

    sites: tuple[ScheduleSite, ...]
    missing: tuple[str, ...]
    tells_preemption: bool

    def of(self, moment: ScheduleMoment) -> tuple[int, ...]:
        """The addresses of one moment."""
        return tuple(site.pc for site in self.sites if site.moment is moment)


_CREATES: Final = "runtime.newproc.func1"
_PUTS: Final = "runtime.runqput"
_READY: Final = "runtime.ready"
_PARKS: Final = "runtime.park_m"
_ASSISTS: Final = "runtime.gcAssistAlloc1"
# Those that run on a thread's own stack.
_ON_G0: Final = (
    (_PARKS, ScheduleMoment.PARK, ("rax",)),
    ("runtime.preemptPark", ScheduleMoment.SUSPEND, ("rax",)),
    ("runtime.execute", ScheduleMoment.RUN, ("rax",)),
    ("runtime.goyield_m", ScheduleMoment.PREEMPT, ("rax",)),
    ("runtime.coroswitch_m", ScheduleMoment.SWITCH, ("rax",)),
    ("runtime.netpollready", ScheduleMoment.NET_READY, ("rbx", "rcx")),
    ("runtime.stopTheWorldWithSema", ScheduleMoment.STOP_WORLD, ("rax",)),
    ("runtime.startTheWorldWithSema", ScheduleMoment.START_WORLD, ()),
)
# Before Go 1.22, these call goschedImpl, which does not know whether the goroutine was made to.
_OLD_YIELDS: Final = (
    ("runtime.gosched_m", ScheduleMoment.YIELD, ("rax",)),
    ("runtime.goschedguarded_m", ScheduleMoment.YIELD, ("rax",)),
    ("runtime.gopreempt_m", ScheduleMoment.PREEMPT, ("rax",)),
)
_YIELDS: Final = (("runtime.goschedImpl", ScheduleMoment.YIELD, ("rax", "rbx")),)
# Go 1.22 on; before, goexit0 does all that this does.
_DESTROYS: Final = (("runtime.gdestroy", ScheduleMoment.EXIT, ("rax",)),)
_OLD_DESTROYS: Final = (("runtime.goexit0", ScheduleMoment.EXIT, ("rax",)),)
_ON_GOROUTINES: Final = (
    ("runtime.gcBgMarkStartWorkers", ScheduleMoment.GC_BEGIN),
    ("runtime.gcMarkTermination", ScheduleMoment.GC_END),
)
_NEEDED: Final = (
    ScheduleMoment.PARK,
    ScheduleMoment.READY,
    ScheduleMoment.EXIT,
    ScheduleMoment.CREATE,
)
_NOT_ALWAYS_LINKED: Final = (
    "runtime.coroswitch_m",
    "runtime.netpollready",
    "runtime.goschedguarded_m",
)
_NEWER: Final = (*_YIELDS, *_DESTROYS)
_OLDER: Final = (*_OLD_YIELDS, *_OLD_DESTROYS)


def schedule_sites(binary: GoBinary) -> ScheduleSites:
    """Find the places to probe. Raises GoTableError if no known Go version compiles such code."""
    every = (*_ON_G0, *_NEWER, *_OLDER)
    names = [name for name, *_ in (*every, *_ON_GOROUTINES)]
    code = RuntimeCode(binary, called=(_PUTS, _READY, _ASSISTS), others=(_CREATES, *names))
    for name in (_PARKS, _READY):
        if not code.functions(name):
            raise GoTableError(f"the function table lacks {name}: the program may be obfuscated")
    is_newer = all(code.functions(name) for name, *_ in _DESTROYS)  # Go 1.22 on
    probed = [*_called(code), *_ready(code)]
    missing = []
    for name, moment, registers in (*_ON_G0, *(_NEWER if is_newer else _OLDER)):
        places = [at_entry(code.decoded(function), registers) for function in code.functions(name)]
        probed += [ScheduleSite(moment, pc) for pc in places if pc is not None]
        if not any(places) and name not in _NOT_ALWAYS_LINKED:
            missing.append(name)
    for name, moment in _ON_GOROUTINES:
        functions = code.functions(name)
        probed += [
            ScheduleSite(moment, _behind_any_check(code, function)) for function in functions
        ]
        if not functions:
            missing.append(name)
    for moment in _NEEDED:
        if not any(site.moment is moment for site in probed):
            raise unknown_code(f"it has no place for a probe at the moment {moment.value}")
    by_pc = {site.pc: site for site in probed}
    sites = tuple(by_pc[pc] for pc in sorted(by_pc))
    return ScheduleSites(sites, tuple(missing), tells_preemption=is_newer)


def _ready(code: RuntimeCode) -> list[ScheduleSite]:
    """runtime.ready runs on g0, too; where its probe for waits is, it may share the breakpoint."""
    places = [behind_check(code.decoded(function)) for function in code.functions(_READY)]
    return [ScheduleSite(ScheduleMoment.READY, pc) for pc in places if pc is not None]


def _called(code: RuntimeCode) -> list[ScheduleSite]:
    """The sites at calls: before a new goroutine gets into a run queue, and around an assist."""
    creates = code.functions(_CREATES)
    sites = [
        ScheduleSite(ScheduleMoment.CREATE, pc)
        for pc in code.calls(_PUTS)
        if any(create.entry <= pc < create.end for create in creates)
    ]
    for pc in code.calls(_ASSISTS):
        sites.append(ScheduleSite(ScheduleMoment.ASSIST, pc))
        sites.append(ScheduleSite(ScheduleMoment.ASSIST_END, pc + CALL_BYTES))
    return sites


def _behind_any_check(code: RuntimeCode, function: Function) -> int:
    """A place behind the stack check, however dear: it is passed a few times a second at most."""
    instructions = code.decoded(function)
    cheap = behind_check(instructions, register="")
    if cheap is not None:
        return cheap
    return next(
        (instruction.end for instruction in instructions if instruction.is_jump), function.entry
    )
