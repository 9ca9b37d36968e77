"""A target of a recording: its program, the CPU time that it used, how it ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ebpfprof.console.text import listed, printable
from ebpfprof.errors import NotGoProgram, UnsupportedGo, UnsupportedTarget
from ebpfprof.goruntime.open_processes import OpenProcesses
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.overhead.cost import Overhead
from ebpfprof.process.process import Target, TargetEnd
from ebpfprof.profile.losses import Loss
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.registry import kind_named

if TYPE_CHECKING:  # the readers of executables are imported late, while BCC compiles
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.goruntime.samples.sampling_thread import SamplingThread
    from ebpfprof.goruntime.samples.shared_sampler import SharedSampler
    from ebpfprof.profile.model import Profile
    from ebpfprof.profilers.report_builder import RecordingFacts
    from ebpfprof.recording.loaded_profilers import ProcessRecordings
    from ebpfprof.recording.process_handlers import ProcessHandlers

# How breakpoints of a debugger and of the kernel conflict: docs/faults.md.
_TRACED = (
    "Process {pid} is traced by {tracer}: if it sets a breakpoint on one of our probes, within "
    "Go's runtime, and the breakpoint is still there when the recording ends, the process dies "
    "later. Remove such breakpoints before."
)
_TRACED_AT_THE_END = (
    "Process {pid} is now traced by {tracer}, which attached during the recording: if the process "
    "dies of SIGTRAP later, the debugger had set a breakpoint on one of our probes, within Go's "
    "runtime. Remove such breakpoints before a recording ends."
)

# Where goroutine samples only show which goroutines are idle.
_IDLE_HZ = 10
_IDLE_LATER_HZ = 3
_IDLE_MOST = 2_000  # goroutines; and states, which take a kilobyte each where stacks are deep


@dataclass(slots=True)
class RecordedTarget:
    """A process of a recording, with its program and what it used.

    `kinds` are the names of the kinds to record. `ending` is None while the process runs.
    """

    target: Target
    go: GoTarget | None
    kinds: tuple[str, ...]
    ending: TargetEnd | None = None
    ended_ns: int = 0
    """When we noticed its end, CLOCK_MONOTONIC; 0 while it runs."""
    cpu_ns: int = 0
    """The CPU time of its threads while it was recorded, until the last read_cpu_time()."""
    cpu_before_ns: int | None = None
    """Their CPU time before the recording, minus cpu_ns of it; None: it is not recorded."""
    kernel_ns: int | None = None
    """The part of cpu_ns in the kernel, by ticks; None: not known."""
    kernel_before_ns: int | None = None
    """As cpu_before_ns, in the kernel."""
    has_probes: bool = False
    """Whether the recording attaches probes to it."""
    traced: str = ""
    """A warning about a debugger that traces the process and its probes; "" without one."""
    unprobed: str = ""
    """A warning about its code that can't be probed, such as a Go plugin's; "" without any."""
    no_go: str = ""
    """Why it has not all kinds, as no program of Go or one without probes, in words; else ""."""

    def goroutines(self) -> int:
        """How many goroutines it has now; 0 if we can't read that."""
        from ebpfprof.goruntime.goroutines.parked import count_goroutines

        try:
            return count_goroutines(self.go) if self.go else 0
        except Exception:  # any error: the maps then get their usual size
            return 0

    def note_ending(self) -> bool:
        """Check whether it has ended, unless that is known; return whether that is new."""
        if self.ending is None:
            self.ending = self.target.ending()
            self.ended_ns = kernel_now_ns() if self.ending else 0
            return self.ending is not None
        return False

    def begin_cpu(self) -> None:
        """Count the process's CPU time from now on."""
        total_ns = self.target.cpu_ns()
        self.cpu_before_ns = None if total_ns is None else total_ns - self.cpu_ns
        total_ns = self.target.kernel_ns()
        self.kernel_before_ns = None if total_ns is None else total_ns - (self.kernel_ns or 0)

    def read_cpu_time(self, *, is_over: bool = False) -> None:
        """Update cpu_ns, unless the process has ended. With `is_over`, stop counting."""
        total_ns = self.target.cpu_ns() if self.ending is None else None
        if total_ns is not None and self.cpu_before_ns is not None:
            self.cpu_ns = total_ns - self.cpu_before_ns
            in_kernel_ns = self.target.kernel_ns()
            if in_kernel_ns is not None and self.kernel_before_ns is not None:
                self.kernel_ns = in_kernel_ns - self.kernel_before_ns
        if is_over:
            self.cpu_before_ns = None

    def notice_tracer(self, *, is_over: bool = False) -> bool:
        """Check whether a debugger traces the process; return whether that is new."""
        if self.traced or not self.has_probes:
            return False
        tracer = self.target.tracer()
        if tracer:
            text = _TRACED_AT_THE_END if is_over else _TRACED
            self.traced = text.format(pid=self.target.pid, tracer=tracer)
        return bool(self.traced)

    def notice_unprobed(self) -> bool:
        """Check whether it has new code without probes; return whether there is a new warning."""
        if self.go is None or self.ending:
            return False
        if not any(kind_named(name).loader.needs_go for name in self.kinds):
            return False
        from ebpfprof.goruntime.other_code import other_code_warning
        from ebpfprof.goruntime.remapped_text import remapped_warning

        known = self.unprobed
        warnings = [remapped_warning(self.go)] if self.has_probes else []
        warnings.append(other_code_warning(self.go, has_probes=self.has_probes))
        self.unprobed = " ".join(filter(None, warnings)) or known
        return self.unprobed != known


class LiveTarget:
    """A process that a LiveSession can record at any time; LiveSession.add makes it."""

    def __init__(
        self,
        number: int,
        recorded: RecordedTarget,
        recordings: ProcessRecordings,
        held: ExitStack,
        handlers: ProcessHandlers | None = None,
    ) -> None:
        self.number = number
        """Its number among the targets of the session: its slot in the maps."""
        self.recorded = recorded
        self.recordings = recordings
        self.held = held
        """Closes the process and all that profilers opened for it."""
        self.handlers = handlers
        """Its handlers; None unless profiles are to be by handler."""
        self.users = 0
        """How many starts have no stop yet."""
        self.started_ns = 0
        """The last start, CLOCK_MONOTONIC."""
        self.started_unix_ns = 0
        """The first start, Unix time; 0 before it."""
        self._recorded_ns = 0  # before the last start

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.recorded.target.pid

    @property
    def name(self) -> str:
        """The name of its command, printable."""
        return self.recorded.target.name

    @property
    def go_version(self) -> str | None:
        """Its version of Go, such as "go1.27.3"; None if it is not a Go program."""
        go = self.recorded.go
        return printable(go.binary.version.text) if go else None

    @property
    def kinds(self) -> tuple[str, ...]:
        """The profiles it can have."""
        return self.recorded.kinds

    @property
    def ending(self) -> TargetEnd | None:
        """How it ended; None while it runs."""
        return self.recorded.ending

    @property
    def is_recording(self) -> bool:
        """Whether it is recorded."""
        return self.users > 0 and self.ending is None

    @property
    def recorded_ns(self) -> int:
        """For how long it was recorded, until now or until its end, in ns."""
        if not self.is_recording:
            return self._recorded_ns
        return self._recorded_ns + kernel_now_ns() - self.started_ns

    def labelled(self, profiles: Sequence[Profile]) -> list[Profile]:
        """The profiles with the labels of their handlers, if they are to have them."""
        return self.handlers.labelled(profiles) if self.handlers else [*profiles]

    def pause(self, at_ns: int) -> None:
        """Stop counting recorded_ns at `at_ns` (CLOCK_MONOTONIC), and drop all starts."""
        self._recorded_ns += at_ns - self.started_ns
        self.users = 0

    def facts(
        self, kinds: tuple[str, ...], overhead: Overhead, losses: tuple[Loss, ...]
    ) -> RecordingFacts:
        """The facts about its recording, from the first start until now."""
        from ebpfprof.profilers.report_builder import RecordingFacts

        recorded = self.recorded
        recorded.notice_tracer()
        recorded.notice_unprobed()
        return RecordingFacts(
            target=recorded.target,
            go=recorded.go,
            kinds=kinds,
            started_ns=0,
            started_unix_ns=self.started_unix_ns,
            ended_ns=self.recorded_ns,
            until_unix_ns=time.time_ns(),
            ending=recorded.ending,
            traced=recorded.traced,
            unprobed=recorded.unprobed,
            overhead=overhead,
            losses=losses,
            no_go=recorded.no_go,
        )


def open_target(
    pid: int, options: Options, held: ExitStack, processes: OpenProcesses
) -> RecordedTarget:
    """Open a process and read its program; `held` will close it. Raises any of ebpfprof.errors.

    A process that runs no Go program gets the kinds that any program can have; so does one of an
    unknown version of Go, if the options ask for no others. One whose code can't be probed gets the
    kinds that need no probes.
    """
    from ebpfprof.goruntime.process import children_instead
    from ebpfprof.goruntime.remapped_text import remapped_warning

    process = held.enter_context(processes.open(pid))
    target, go, no_go = process.target, None, ""
    kinds = tuple(name for name in options.kinds if not kind_named(name).loader.needs_go)
    try:
        go = process.go()
        kinds = options.kinds
        if any(kind_named(name).loader.needs_probes for name in kinds) and (
            why := remapped_warning(go)
        ):
            no_go = why.rstrip(".")
            kinds = tuple(name for name in kinds if not kind_named(name).loader.needs_probes)
            if not kinds:
                raise UnsupportedTarget(why)
    except NotGoProgram as error:
        if not kinds or (options.kinds_given and kinds != options.kinds):
            raise
        what = error.what or f"{_named(target)} is not a Go program"
        no_go = f"{what}: {_all_there_is(kinds)}"
        if error.has_several:
            no_go = f"{what}. Now {_all_there_is(kinds)}"
        if not error.what and (children := children_instead(pid)):
            no_go += f". {children.rstrip('.')}"
    except UnsupportedGo as error:
        if not kinds or kinds != options.kinds:
            raise
        no_go = f"{_named(target)}: {error.why}. So {_all_there_is(kinds)}"
    return RecordedTarget(target, go, kinds, no_go=no_go)


def _named(target: Target) -> str:
    return f"process {target.pid} ({target.name})"


def _all_there_is(kinds: Sequence[str]) -> str:
    profiles = "profile is" if len(kinds) == 1 else "profiles are"
    return f"only its {listed([kind_named(name).title for name in kinds])} {profiles} recorded"


def sampler_of(
    recorded: RecordedTarget, options: Options, thread: SamplingThread, held: ExitStack
) -> SharedSampler | None:
    """What samples the goroutines of a process, for all its recordings; None without a Go program.

    `held` ends them.
    """
    if recorded.go is None:
        return None
    from ebpfprof.goruntime.goroutines.table import MAX_GOROUTINES
    from ebpfprof.goruntime.samples.sampling_thread import SamplingRate
    from ebpfprof.goruntime.samples.shared_sampler import SharedSampler

    only_idle = not options.needs_all_samples
    sampler = SharedSampler(
        recorded.go,
        rate=(
            SamplingRate(_IDLE_HZ, _IDLE_LATER_HZ)
            if only_idle
            else SamplingRate(options["wall_hz"], options["wall_hz"])
        ),
        has_labels=options.labels != () and not only_idle,
        has_semaphores=bool(options["by_lock"] or options["lock_labels"]) and not only_idle,
        thread=thread,
        most=_IDLE_MOST if only_idle else MAX_GOROUTINES,
    )
    return held.enter_context(sampler)
