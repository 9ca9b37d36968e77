"""The child process of `serve` that records an execution trace, without defaults from files.

With --last it keeps the last seconds and sends them to its parent on request, over stdin and stdout
(ebpfprof.tracing.flight_recorder). With --duration it records for that time and writes the file to
stdout. Users do not start it: help, docs and completion omit it.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from ebpfprof.tracing.recorder import TraceOptions

NAME: Final = "served-trace"
_STDIN: Final = 0
_USUAL_BYTES: Final = 64 << 20
_KEPT_BYTES: Final = 32 << 20
"""For the events of the last seconds. Several such processes may run: see server.traces."""


@click.command(NAME, hidden=True)
@click.option("--pid", type=int, required=True)
@click.option("--last", "last_s", type=float)
@click.option("--duration", "duration_s", type=float, default=0.0)
@click.option("--format", "format_name", default="go")
@click.option("--max-overhead", type=float, required=True)
@click.option("--allow-unknown-go", is_flag=True)
def command(
    pid: int,
    last_s: float | None,
    duration_s: float,
    format_name: str,
    max_overhead: float,
    allow_unknown_go: bool,
) -> None:
    """Record a trace for the parent."""
    from ebpfprof.errors import Aborted
    from ebpfprof.profilers.options import Options
    from ebpfprof.recording.drop_privileges import give_up_before_recording
    from ebpfprof.system.heap import give_back_large_blocks
    from ebpfprof.tracing.recorder import TraceOptions

    give_back_large_blocks()
    try:
        give_up_before_recording(Options(max_overhead=max_overhead), pids=[pid])
        if last_s is None:
            options = TraceOptions(max_overhead=max_overhead, buffer_bytes=_USUAL_BYTES)
            _record(pid, options, duration_s, format_name, allow_unknown_go=allow_unknown_go)
        else:
            options = TraceOptions(
                max_overhead=max_overhead, last_s=last_s, buffer_bytes=_KEPT_BYTES
            )
            _keep(pid, options, allow_unknown_go=allow_unknown_go)
    except KeyboardInterrupt:
        raise Aborted("Aborted.") from None


def _record(
    pid: int,
    options: TraceOptions,
    duration_s: float,
    format_name: str,
    *,
    allow_unknown_go: bool,
) -> None:
    from ebpfprof.commands.trace_tables import Asked
    from ebpfprof.commands.tracing import Tracing
    from ebpfprof.system.requests import WriteRequests
    from ebpfprof.system.signals import Signals

    tracing = Tracing(
        options,
        format_name=format_name,
        is_quiet=True,
        asked=Asked(),
        until_waits=(),
        until_goroutines=None,
        allow_unknown_go=allow_unknown_go,
        requests=WriteRequests(),
    )
    with ExitStack() as held:
        signals = held.enter_context(Signals())
        tracing.open(pid, Path("-"), held, force=False)
        tracing.record(duration_s, signals)
        tracing.write()


def _keep(pid: int, options: TraceOptions, *, allow_unknown_go: bool) -> None:
    from ebpfprof.export.timelines.formats import FORMATS
    from ebpfprof.goruntime.process import inspect
    from ebpfprof.process.file_opener import WorkerFileOpener
    from ebpfprof.process.process import Target
    from ebpfprof.system import signals
    from ebpfprof.tracing.flight_recorder import FlightRecorder
    from ebpfprof.tracing.recorder import TraceRecorder

    signals.ignore()  # signals of a terminal are for the parent; its end is enough
    with ExitStack() as held:
        files = held.enter_context(WorkerFileOpener())
        target = held.enter_context(Target(pid, files))
        go = inspect(target, allow_unknown_go=allow_unknown_go)
        held.callback(go.binary.elf.close)
        recorder = held.enter_context(TraceRecorder(go, options))
        recorder.load()
        encoders = {name: one.encode for name, one in FORMATS.items()}
        FlightRecorder(recorder, encoders, _STDIN, sys.stdout.buffer).run()
