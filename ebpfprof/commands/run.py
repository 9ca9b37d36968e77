"""`ebpfprof run`: start a program and profile it from its first instruction."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from ebpfprof.commands.recording_options import RecordingCommand
from ebpfprof.commands.shared_options import duration_option, require_types_for, writing_options
from ebpfprof.console.text import printable
from ebpfprof.errors import Aborted, EbpfprofError, NotGoProgram, to_type

if TYPE_CHECKING:
    from ebpfprof.commands.results import Writing
    from ebpfprof.process.launch import LaunchedProgram
    from ebpfprof.profilers.options import Options


def _complete_files(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:
    return [CompletionItem(begun, type="file")]


@click.command(
    "run",
    cls=RecordingCommand,
    without=("runtime",),  # none of its libraries is mapped yet
    context_settings={"allow_interspersed_args": False},
)
@click.argument(
    "program",
    nargs=-1,
    required=True,
    type=click.UNPROCESSED,
    metavar="[--] PROGRAM [ARGUMENT]...",
    shell_complete=_complete_files,
)
@duration_option(
    default=None,
    help="Record only the first TIME; the program continues.  [default: until it ends]",
)
@click.option(
    "--user",
    "user_name",
    metavar="NAME",
    help="Run the program as this user, with the user's groups and home.  [default: the user who "
    "runs ebpfprof]",
)
@writing_options
def command(
    program: tuple[str, ...],
    duration_s: float | None,
    user_name: str | None,
    output: Path | None,
    writing: Writing,
    options: Options,
) -> int:
    """Start a program and profile it from its first instruction.

    stdin and stdout belong to the program; ebpfprof writes to stderr. Ctrl-C ends the program, and
    ebpfprof writes the profiles; it forwards other signals to the program. The exit status is the
    program's, 128 + N if signal N ended it, unless recording failed. The program runs as the user
    who runs ebpfprof, under sudo as root: see --user.

    If the program calls exec (env, nice, sh -c), ebpfprof follows it until the first Go program
    starts. It does not profile child processes.

    \b
    Examples:
      sudo ebpfprof run -- ./server --port 8080
      sudo ebpfprof run --profile cpu -o cpu.pb.gz -- ./batch-job input.csv
      sudo ebpfprof run --user "$USER" --by-lock -- go-program -v
      sudo ebpfprof run --duration 10 -- ./server       # how it starts up
      sudo ebpfprof run --profile block -f html -- env GOMAXPROCS=2 ./server
    """
    from ebpfprof.console.terminal import say
    from ebpfprof.privileges.checks import require_capabilities
    from ebpfprof.process.launch import LaunchedProgram, User
    from ebpfprof.recording.drop_privileges import give_up_before_recording
    from ebpfprof.system.signals import Signals

    _refuse_contradictions(output)
    require_types_for(writing.format, options.recorded_kinds)
    user = User.named(user_name) if user_name is not None else None
    if user_name is not None and user is None:
        raise click.UsageError(f"--user: there is no user {printable(user_name)}.")
    require_capabilities(needs_bpf=options.needs_bpf)
    written: list[str] = []

    def give_up() -> None:
        give_up_before_recording(options, writes=True, has_child=True)

    try:
        # The program keeps the rights of ebpfprof; ebpfprof continues with fewer.
        with Signals(), LaunchedProgram(program, user, on_forked=give_up) as child:
            plan = _Plan(options, replace(writing, to_stderr=True), output, duration_s or math.inf)
            try:
                _profile(child, plan, written)
            except (EbpfprofError, ExceptionGroup):
                if child.is_stopped:
                    say("ebpfprof: The program was killed before its first instruction.", err=True)
                elif child.wait():
                    say(f"ebpfprof: The program ended with status {child.wait()}.", err=True)
                raise
            return child.wait()
    except KeyboardInterrupt:
        names = ", ".join(map(printable, written))
        raise Aborted(f"Aborted. Written: {names or 'nothing'}.") from None


@dataclass(frozen=True, slots=True)
class _Plan:
    """How to record and to write."""

    options: Options
    writing: Writing
    output: Path | None
    duration_s: float


def _refuse_contradictions(output: Path | None) -> None:
    if str(output) == "-":
        raise click.UsageError("-o -: standard output belongs to the program. Use -o FILE.")


def _profile(child: LaunchedProgram, plan: _Plan, written: list[str]) -> None:
    """Profile the child, or the program that replaces it, to its end; write the profiles.

    Adds the names of the files to `written`. Raises any of ebpfprof.errors, one or a group.
    """
    from ebpfprof.discovery.executables import Executables
    from ebpfprof.process.launch import SignalRelay
    from ebpfprof.system.open_files import allow_many
    from ebpfprof.system.signals import check

    allow_many()
    executables = Executables()
    with ExitStack() as relayed:
        is_replaced = True
        while is_replaced:
            is_go, name = executables.of(child.pid).is_go, _name(child)
            with ExitStack() as held:
                recorder = None
                if is_go or plan.options.takes_any_program:
                    recorder = _ProgramRecording(child, plan, held)
                # From now on the child decides when to end.
                relayed.enter_context(SignalRelay(child))
                check()
                child.run(follow=not is_go)
                try:
                    if recorder:
                        recorder.record()
                except BaseException:  # also Ctrl-C: else the child would stay stopped
                    child.leave()
                    raise
                # It may be stopped at its next program before the session notices the end.
                is_over = recorder is None or recorder.has_ended or child.is_stopped
                may_be_replaced = not is_go and is_over
                is_replaced = may_be_replaced and child.wait_until_stopped()
                if is_replaced:
                    if not plan.writing.is_quiet:
                        _say_what_is_next(child, name)
                    continue
                child.leave()
                try:
                    if child.has_ended:
                        relayed.close()  # from now on a signal aborts the writing
                    if recorder is None:
                        raise _no_go(name)
                    recorder.write(written)
                finally:
                    child.wait()


class _ProgramRecording:
    """The recording of one program of the child, until the program ends."""

    def __init__(self, child: LaunchedProgram, plan: _Plan, held: ExitStack) -> None:
        """Attach the probes; `held` detaches them. Raises any of ebpfprof.errors."""
        from ebpfprof.commands.results import say_what_is_assumed
        from ebpfprof.export.formats import FORMATS
        from ebpfprof.recording.session import Session
        from ebpfprof.system.signals import interruptible

        self._child, self._plan = child, plan
        until_end = math.isinf(plan.duration_s)
        has_slices = FORMATS[plan.writing.format].has_slices
        session = interruptible(
            lambda: Session([child.pid], plan.options, until_end=until_end, has_slices=has_slices)
        )
        self._session = held.enter_context(session)
        self._files = plan.writing.prepare(self._session, plan.output, held)
        say_what_is_assumed(self._session)
        self._session.start()
        plan.writing.say_recording(self._session, plan.options, plan.duration_s)

    @property
    def has_ended(self) -> bool:
        """Whether the program has ended, by an exit or by exec."""
        return bool(self._session.endings())

    def record(self) -> None:
        """Record until the program ends, or for the duration."""
        self._session.wait(self._plan.duration_s, lambda gone_s: self._child.is_stopped)

    def write(self, written: list[str]) -> None:
        """Write the profiles. Raises all errors as one group."""
        from ebpfprof.console.terminal import say

        self._plan.writing.write(self._session, self._files, written)
        if self.has_ended and not self._child.has_ended:
            pid = self._child.pid
            say(
                f"ebpfprof: The current program of process {pid} is not recorded. To record it:"
                + to_type(f"ebpfprof attach --pid {pid}"),
                err=True,
            )


def _name(child: LaunchedProgram) -> str:
    """The name of the program that the child runs, printable."""
    from ebpfprof.goruntime.open_processes import OpenProcesses

    with OpenProcesses().open(child.pid) as process:
        return printable(process.target.name)


def _say_what_is_next(child: LaunchedProgram, name: str) -> None:
    from ebpfprof.console.terminal import say

    say(
        f"ebpfprof: process {child.pid} ({name}) called exec: {_name(child)} is profiled instead, "
        "from its first instruction.",
        err=True,
    )


def _no_go(name: str) -> NotGoProgram:
    from ebpfprof.profilers.registry import kinds_of_any_program

    kinds = ",".join(kind.name for kind in kinds_of_any_program())
    return NotGoProgram(
        f"Nothing was recorded: {name} is not a Go program, and did not exec one. For other "
        f"programs use --profile {kinds}. Child processes are not profiled: run the Go program "
        f"itself:{to_type('ebpfprof run -- ./program')}"
    )
