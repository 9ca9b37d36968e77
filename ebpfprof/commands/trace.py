"""`ebpfprof trace`: what ran when, why it stopped, who made it go on."""

from __future__ import annotations

import math
from contextlib import ExitStack
from pathlib import Path

import click
from click.core import ParameterSource

from ebpfprof.commands.parameter_types import Duration, Number, OneOf
from ebpfprof.commands.recording_options import (
    ALLOW_UNKNOWN_GO_OPTION,
    FORCE_OPTION,
    duration_option,
    output_option,
)
from ebpfprof.commands.target_options import target_options
from ebpfprof.commands.until_wait import LEAST_S, UntilWait, UntilWaitType
from ebpfprof.commands.verb import Verb
from ebpfprof.errors import Aborted
from ebpfprof.export.formats import TIMELINES

_USUAL_S = 5.0
_MOST_LAST_S = 3600.0
_LEAST_BUFFER_MB, _MOST_BUFFER_MB = 1, 128
_BUFFER_MB = 64
_MAX_OVERHEAD = 5.0
"""A trace lasts seconds, and its pauses hide what it is for: the 1 % of profiles is too little."""
_FREE_NS = 100e6
"""Of CPU time, once, besides the default bound. In the usual 5 s it is 2 % of a processor.

A program that uses a tenth of a processor is recorded whole, even at 20 % of its CPU time.
"""
_FEW_WAITS, _MANY_WAITS = 1, 10
"""Sentences and rows of who waits for whom; one of each takes about ten lines at 80 columns."""


@click.command("trace", cls=Verb)
@target_options()
@duration_option(
    default=None,
    help="How long to record; Ctrl-C ends it earlier and writes what there is.  [default: 5s; "
    "with --last until Ctrl-C]",
)
@output_option(default="COMMAND-PID-DATE-TIME.SUFFIX")
@FORCE_OPTION
@click.option(
    "-f",
    "--format",
    "format_name",
    type=OneOf(TIMELINES),
    help="What to write: go for `go tool trace`, perfetto for ui.perfetto.dev, html for a page "
    "that needs nothing else.  [default: as FILE's name ends, else go]",
)
@click.option(
    "--exact-starts",
    is_flag=True,
    help="Also probe the moment when a goroutine begins to run: exact scheduling latencies, for "
    "half as much overhead again.",
)
@click.option(
    "--last",
    "last_s",
    type=Duration(most_s=_MOST_LAST_S),
    metavar="TIME",
    help="Keep only what happened last, until Ctrl-C, SIGTERM or a condition; then write it. "
    "SIGUSR1 or SIGUSR2 writes it, too, and goes on.",
)
@click.option(
    "--until-wait",
    "until_waits",
    type=UntilWaitType(),
    multiple=True,
    metavar="[WHAT=]TIME",
    help="End when a goroutine has waited that long for a lock, or for WHAT: a wait reason as in "
    "Go's tracebacks ('chan receive=2s'), runnable (for a processor), syscall, or a function on "
    "the stack of one that waits (main.handle=1s). Waits of idle goroutines for work don't count, "
    f"unless the function that waits is named. At least {LEAST_S * 1e3:g}ms; may be given several "
    "times.",
)
@click.option(
    "--until-goroutines",
    type=Number(1, 1 << 30),
    metavar="N",
    help="End when there are more goroutines than that.",
)
@click.option(
    "--path",
    "path_of",
    metavar="G17|FUNCTION|KEY=VALUE|ADDRESS",
    help="Also show what the time of a goroutine depended on, of those that begin with a function, "
    "of those with a label, or of requests on a connection (10.0.0.2:4242: a peer; :8080: a local "
    "port): themselves, the run queue, and what others did for whom they waited.",
)
@click.option(
    "--from",
    "from_s",
    type=Duration(may_be_0=True),
    metavar="TIME",
    default=0.0,
    help="With --path: only from then on, since the trace's begin.  [default: all of it]",
)
@click.option(
    "--to",
    "to_s",
    type=Duration(),
    metavar="TIME",
    help="With --path: only until then, since the trace's begin.",
)
@click.option(
    "--waits-for/--no-waits-for",
    default=None,
    help="Show all of who waits for whom, how long, and for what in the end; circles are named; or "
    "nothing of it.  [default: what stands out]",
)
@click.option(
    "--buffer",
    "buffer_mb",
    type=Number(_LEAST_BUFFER_MB, _MOST_BUFFER_MB),
    metavar="MB",
    default=_BUFFER_MB,
    show_default=True,
    help="Memory for events that were not read yet; with --last, for all there are.",
)
@click.option(
    "--max-overhead",
    type=Number(0, 100, is_fraction=True),
    metavar="PERCENT",
    default=_MAX_OVERHEAD,
    show_default=True,
    help="How much of its CPU time the program may lose. Where recording all takes more, ebpfprof "
    "records slices of the time, each whole. 0: all of the time. Without this option, the first "
    f"{_FREE_NS / 1e6:g} ms of CPU time don't count.",
)
@click.option("-q", "--quiet", "is_quiet", is_flag=True, help="Say only where the file is.")
@ALLOW_UNKNOWN_GO_OPTION
def command(
    pids: list[int],
    duration_s: float | None,
    output: Path | None,
    force: bool,
    format_name: str | None,
    exact_starts: bool,
    last_s: float | None,
    until_waits: tuple[UntilWait, ...],
    until_goroutines: float | None,
    path_of: str | None,
    from_s: float,
    to_s: float | None,
    waits_for: bool | None,
    buffer_mb: float,
    max_overhead: float,
    is_quiet: bool,
    allow_unknown_go: bool,
) -> None:
    """Record what each goroutine does, moment by moment: an execution trace.

    It shows when goroutines ran, on which P and thread, when they were ready to and did not, what
    they waited for, who woke them, system calls that blocked, garbage collections and stops of the
    world; Go's own tracer need not be on.

    \b
    Examples:
      sudo ebpfprof trace 1234
      sudo ebpfprof trace --pid 1234 --duration 10 -o shop.trace && go tool trace shop.trace
      sudo ebpfprof trace --name shop -f perfetto
      sudo ebpfprof trace --name shop -f html --max-overhead 0
      sudo ebpfprof trace --pid 1234 --path main.handle        # what did it wait for?
      sudo ebpfprof trace --pid 1234 --path :8080              # requests on a port
      sudo ebpfprof trace --pid 1234 --waits-for               # all of the table
      sudo ebpfprof trace --pid 1234 --last 10s                # until Ctrl-C
      sudo ebpfprof trace --pid 1234 --last 10s --until-wait 1s
      sudo ebpfprof trace --pid 1234 --last 10s --until-wait main.handle=2s
    """
    from ebpfprof.commands.trace_tables import Asked
    from ebpfprof.commands.tracing import Tracing
    from ebpfprof.privileges.checks import require_capabilities
    from ebpfprof.profilers.options import Options
    from ebpfprof.recording.drop_privileges import give_up_before_recording
    from ebpfprof.system.requests import WriteRequests
    from ebpfprof.system.signals import Signals
    from ebpfprof.tracing.recorder import TraceOptions

    if len(pids) != 1:
        raise click.UsageError(f"A trace is of one process; {len(pids)} were chosen.")
    if path_of is None and (from_s or to_s is not None):
        raise click.UsageError("--from and --to limit --path, which was not given.")
    if to_s is not None and to_s <= from_s:
        raise click.UsageError("--to must be later than --from.")
    if duration_s is None:
        duration_s = _default_duration_s(last_s, until_waits or None, until_goroutines)
    rights = Options(max_overhead=max_overhead)
    require_capabilities(needs_bpf=True)
    bound = click.get_current_context().get_parameter_source("max_overhead")
    options = TraceOptions(
        exact_starts=exact_starts,
        max_overhead=max_overhead,
        free_ns=_FREE_NS if bound is ParameterSource.DEFAULT else 0.0,
        last_s=last_s,
        buffer_bytes=int(buffer_mb) << 20,
    )
    tracing = Tracing(
        options,
        format_name=format_name,
        is_quiet=is_quiet,
        asked=Asked(path_of, from_s, to_s, _most_waits(waits_for)),
        until_waits=until_waits,
        until_goroutines=None if until_goroutines is None else int(until_goroutines),
        allow_unknown_go=allow_unknown_go,
        requests=WriteRequests(),
    )
    try:
        with ExitStack() as held:
            give_up_before_recording(rights, writes=True, pids=pids)
            signals = held.enter_context(Signals())
            tracing.open(pids[0], output, held, force=force)
            tracing.record(duration_s, signals)
            tracing.write()
    except KeyboardInterrupt:
        raise Aborted("Aborted. Nothing was written.") from None


def _most_waits(waits_for: bool | None) -> int:
    """How many rows the table of who waits for whom has."""
    if waits_for is None:
        return _FEW_WAITS
    return _MANY_WAITS if waits_for else 0


def _default_duration_s(*ends: object) -> float:
    """Without another end, some seconds."""
    return _USUAL_S if all(each is None for each in ends) else math.inf
