"""A process that is recorded: what it is, what it used meanwhile, how it ended."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ebpfprof.console.text import printable
from ebpfprof.errors import NotGoProgram
from ebpfprof.goruntime.programs import Programs
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.kernel.losses import Loss
from ebpfprof.overhead.cost import Overhead, Runs
from ebpfprof.process.file_opener import FileOpener
from ebpfprof.process.process import Target, TargetEnd
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.registry import kind_named

if TYPE_CHECKING:  # what reads executables is imported late, while BCC compiles
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.profilers.report_builder import Recording

# What a debugger and the kernel do to each other's breakpoints: docs/faults.md.
_TRACED = (
    "Process {pid} is traced by {tracer}: a breakpoint that it sets on a probe, within Go's "
    "runtime, and that is still there when the recording ends, kills the process later. Remove "
    "such breakpoints before."
)
_TRACED_AT_THE_END = (
    "Process {pid} has come to be traced by {tracer} while it was recorded: should it die of "
    "SIGTRAP later, the debugger had set a breakpoint on a probe, within Go's runtime. Remove such "
    "breakpoints before a recording ends."
)


@dataclass(slots=True)
class RecordedTarget:
    """A process that is recorded, with what is known of its program."""

    target: Target
    go: GoTarget | None
    kinds: tuple[str, ...]
    ending: TargetEnd | None = None
    ended_ns: int = 0
    """When it was seen to have ended, CLOCK_MONOTONIC; 0: it was not."""
    cpu_ns: int = 0
    """What its threads used while it was recorded, as far as it was looked at."""
    cpu_before_ns: int | None = None
    """What they had used when that began, without what is in cpu_ns; None: it is not recorded."""
    traced: str = ""
    """A warning, of a debugger that was seen at a process with probes in it; "" if none was."""

    def goroutines(self) -> int:
        """How many goroutines it has now; 0 if that can't be told."""
        from ebpfprof.goruntime.goroutines import count_goroutines

        try:
            return count_goroutines(self.go) if self.go else 0
        except Exception:  # whatever it is: tables have the usual size then
            return 0

    def note_ending(self) -> bool:
        """Look whether it has ended, unless that is known; whether it is news."""
        if self.ending is None:
            self.ending = self.target.ending()
            self.ended_ns = kernel_now_ns() if self.ending else 0
            return self.ending is not None
        return False

    def begin_cpu(self) -> None:
        """From now on the process's CPU time counts."""
        total_ns = self.target.cpu_ns()
        self.cpu_before_ns = None if total_ns is None else total_ns - self.cpu_ns

    def look_at_cpu(self, *, is_over: bool = False) -> None:
        """Take note of the CPU time that the process has used, while it can be asked.

        If it `is_over`, what it uses from now on does not count.
        """
        total_ns = self.target.cpu_ns() if self.ending is None else None
        if total_ns is not None and self.cpu_before_ns is not None:
            self.cpu_ns = total_ns - self.cpu_before_ns
        if is_over:
            self.cpu_before_ns = None

    def notice_tracer(self, *, is_over: bool = False) -> bool:
        """Look whether a debugger traces the process, unless one was seen; whether that is new."""
        has_probes = self.go and any(kind_named(name).uses_probes for name in self.kinds)
        if self.traced or not has_probes:
            return False
        tracer = self.target.tracer()
        if tracer:
            said = _TRACED_AT_THE_END if is_over else _TRACED
            self.traced = said.format(pid=self.target.pid, tracer=tracer)
        return bool(self.traced)


class LiveTarget:
    """A process that can be recorded at any time; made by LiveSession.add, which keeps it up."""

    def __init__(self, number: int, recorded: RecordedTarget, held: ExitStack) -> None:
        self.number = number
        """Its number among those that are recorded together."""
        self.recorded = recorded
        self.held = held
        """Closes it."""
        self.users = 0
        """How many starts wait for their stop."""
        self.runs_before = Runs(), Runs()
        """What processes cost that had its number before it: by probe hits, by samples."""
        self.losses_before: tuple[Loss, ...] = ()
        """What was lost before it was opened."""
        self.started_ns = 0
        """When it was last started, CLOCK_MONOTONIC."""
        self.started_unix_ns = 0
        """When it was first recorded, Unix time; 0: not yet."""
        self._recorded_ns = 0  # before it was last started

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.recorded.target.pid

    @property
    def name(self) -> str:
        """What its command is called, made harmless."""
        return self.recorded.target.name

    @property
    def go_version(self) -> str | None:
        """Its version of Go, such as "go1.27.3"; None if it is no Go program."""
        go = self.recorded.go
        return printable(go.binary.version.text) if go else None

    @property
    def kinds(self) -> tuple[str, ...]:
        """The profiles it can have."""
        return self.recorded.kinds

    @property
    def ending(self) -> TargetEnd | None:
        """Why it went; None while it runs."""
        return self.recorded.ending

    @property
    def is_recording(self) -> bool:
        """Whether it is recorded."""
        return self.users > 0 and self.ending is None

    @property
    def recorded_ns(self) -> int:
        """For how many nanoseconds it was recorded, until now or until it went."""
        if not self.is_recording:
            return self._recorded_ns
        return self._recorded_ns + kernel_now_ns() - self.started_ns

    def pause(self) -> None:
        """Stop the clock."""
        self._recorded_ns, self.users = self.recorded_ns, 0

    def recording(
        self, kinds: tuple[str, ...], overhead: Overhead, losses: tuple[Loss, ...]
    ) -> Recording:
        """What is known of its recording until now, since its first start."""
        from ebpfprof.profilers.report_builder import Recording

        recorded = self.recorded
        recorded.notice_tracer()
        return Recording(
            target=recorded.target,
            go=recorded.go,
            kinds=kinds,
            started_ns=0,
            started_unix_ns=self.started_unix_ns,
            ended_ns=self.recorded_ns,
            ending=recorded.ending,
            traced=recorded.traced,
            overhead=overhead,
            losses=losses,
        )


def programs_for(options: Options) -> Programs:
    """Where open_target finds what is known of programs that others run, too."""
    runtime_locks = bool(options["runtime_locks"])
    return Programs(allow_unknown_go=options.allow_unknown_go, runtime_locks=runtime_locks)


def open_target(
    pid: int, options: Options, held: ExitStack, files: FileOpener, programs: Programs
) -> RecordedTarget:
    """Open and inspect a process; `held` will close it. Raises any of ebpfprof.errors.

    `files` opens what it runs and has mapped, `programs` knows those that others run, too. Of one
    that is no Go program, the kinds that any program can have are recorded.
    """
    from ebpfprof.goruntime.process import go_target

    target, kinds, go = held.enter_context(Target(pid, files)), options.kinds, None
    try:
        go = go_target(target, held.enter_context(programs.of(target)))
    except NotGoProgram:
        kinds = tuple(name for name in kinds if not kind_named(name).needs_go)
        if not kinds or (options.kinds_given and kinds != options.kinds):
            raise
    recorded = RecordedTarget(target, go, kinds)
    recorded.notice_tracer()
    return recorded
