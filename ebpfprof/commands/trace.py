"""`ebpfprof trace`: an execution trace of a program."""

from __future__ import annotations

import math
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from ebpfprof.commands.parameter_types import OneOf, Typed, duration, with_setting
from ebpfprof.commands.shared_options import (
    FORCE_OPTION,
    QUIET_OPTION,
    duration_option,
    last_option,
    opening_options,
    output_option,
)
from ebpfprof.commands.target_options import target_options
from ebpfprof.commands.until_wait import LEAST_S, UNTIL_WAIT, UntilWait
from ebpfprof.commands.verb import Verb
from ebpfprof.errors import Aborted
from ebpfprof.export.formats import TIMELINES
from ebpfprof.settings.recording import MAX_OVERHEAD
from ebpfprof.settings.values import NumberValue

if TYPE_CHECKING:
    from ebpfprof.goruntime.open_processes import OpenOptions

_USUAL_S = 5.0
_LEAST_BUFFER_MB, _MOST_BUFFER_MB = 1, 128
_BUFFER_MB = 64
_MAX_OVERHEAD = 5
"""More than for profiles: a trace lasts seconds, and each pause hides what happened."""
_FREE_NS = 100e6
"""Free CPU time, once, besides the default bound: 2 % of a processor in the usual 5 s.

So a program that uses a tenth of a processor is recorded whole, even at 20 % of its CPU time.
"""
_FEW_WAITS, _MANY_WAITS = 1, 10
"""Rows of the table of waits; one row and its sentence take about ten lines at 80 columns."""


@click.command("trace", cls=Verb)
@target_options()
@duration_option(
    default=None,
    help="How long to record; Ctrl-C ends it earlier and writes the trace.  [default: 5s; with "
    "--last until Ctrl-C]",
)
@output_option(default="COMMAND-PID-DATE-TIME.SUFFIX")
@FORCE_OPTION
@click.option(
    "-f",
    "--format",
    "format_name",
    type=OneOf(TIMELINES),
    help="Output format: go for `go tool trace`, perfetto for ui.perfetto.dev, html for a "
    "self-contained page.  [default: from FILE's ending, else go]",
)
@click.option(
    "--exact-starts",
    is_flag=True,
    help="Also probe the moment when a goroutine begins to run: exact scheduling latencies, for "
    "1.5 times the overhead.",
)
@last_option(
    help="Keep only the last TIME, until Ctrl-C, SIGTERM or a condition; then write it. SIGUSR1 or "
    "SIGUSR2 also writes it, and recording continues."
)
@click.option(
    "--until-wait",
    "until_waits",
    type=Typed(UNTIL_WAIT),
    multiple=True,
    metavar="[WHAT=]TIME",
    help="End when a goroutine has waited TIME for a lock, or for WHAT: a wait reason of Go's "
    "tracebacks ('chan receive=2s'), runnable (waiting for a processor), syscall, or a function on "
    "its stack (main.handle=1s). Idle waits don't count, unless the waiting function is named. "
    f"TIME is at least {LEAST_S * 1e3:g}ms. May be repeated.",
)
@click.option(
    "--until-goroutines",
    type=Typed(NumberValue(1, 1 << 30)),
    metavar="N",
    help="End when there are more than N goroutines.",
)
@click.option(
    "--path",
    "path_of",
    metavar="G17|FUNCTION|KEY=VALUE|ADDRESS",
    help="Also show the critical path of a goroutine, of goroutines started by a function or with "
    "a label, or of requests on a connection (10.0.0.2:4242: a peer; :8080: a local port).",
)
@click.option(
    "--from",
    "from_s",
    type=duration(may_be_0=True),
    metavar="TIME",
    default=0.0,
    help="With --path: begin TIME after the start of the trace.  [default: 0s]",
)
@click.option(
    "--to",
    "to_s",
    type=duration(),
    metavar="TIME",
    help="With --path: end TIME after the start of the trace.  [default: its end]",
)
@click.option(
    "--waits-for/--no-waits-for",
    default=None,
    help="Show the whole table of who waits for whom, how long and for what, with its cycles; or "
    "none of it.  [default: the longest waits]",
)
@click.option(
    "--buffer",
    "buffer_mb",
    type=Typed(NumberValue(_LEAST_BUFFER_MB, _MOST_BUFFER_MB)),
    metavar="MB",
    default=_BUFFER_MB,
    show_default=True,
    help="Memory for events that are not yet read; with --last, for all events.",
)
@with_setting(
    MAX_OVERHEAD,
    default=_MAX_OVERHEAD,
    help="Allowed overhead, in percent of the program's CPU time. If recording everything costs "
    "more, ebpfprof records complete slices of the time. 0: record all of the time. Without this "
    f"option, the first {_FREE_NS / 1e6:g} ms of CPU time are free.",
)
@QUIET_OPTION
@opening_options
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
    opening: OpenOptions,
) -> None:
    """Record what each goroutine does, moment by moment: an execution trace.

    It shows when goroutines ran, on which P and thread, when they were ready but not running, what
    they waited for, who woke them, blocking system calls, garbage collections and stops of the
    world. Go's own tracer can be off. Of runtime/trace, tasks, WithRegion and Log are recorded;
    StartRegion and Logf report only while Go's own tracer is on.

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
        raise click.UsageError(f"A trace covers one process, but {len(pids)} were chosen.")
    if path_of is None and (from_s or to_s is not None):
        raise click.UsageError("--from and --to need --path.")
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
        opening=opening,
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
    """How many rows the table of waits has."""
    if waits_for is None:
        return _FEW_WAITS
    return _MANY_WAITS if waits_for else 0


def _default_duration_s(*ends: object) -> float:
    """A few seconds, unless something else ends the trace."""
    return _USUAL_S if all(end is None for end in ends) else math.inf
