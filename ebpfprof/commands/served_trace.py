"""The child process of `serve` that records an execution trace, without defaults from files.

Its parent sends what to record over stdin: the last seconds, which the parent requests
(ebpfprof.tracing.flight_recorder), or the next ones. Users do not start it: help, docs and
completion omit it.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from ebpfprof.system.channel import MessageChannel

NAME: Final = "served-trace"
_STDIN: Final = 0
_USUAL_BYTES: Final = 64 << 20
_KEPT_BYTES: Final = 32 << 20
"""For the events of the last seconds. Several such processes may run: see server.traces."""


@click.command(NAME, hidden=True)
def command() -> None:
    """Record a trace for the parent."""
    from ebpfprof.system import signals
    from ebpfprof.system.channel import ChannelError, MessageChannel, failure
    from ebpfprof.system.heap import give_back_large_blocks

    signals.ignore()  # the end of its parent, or what that sends, ends it
    give_back_large_blocks()
    with (
        MessageChannel.to_parent(_STDIN) as channel,
        suppress(ChannelError),
    ):  # its parent has ended
        try:
            _record(channel, **channel.receive().message)
        except ChannelError:
            raise
        except Exception as error:  # any error: our parent raises it
            channel.send({"failed": failure(error)})


def _record(
    channel: MessageChannel,
    *,
    pid: int,
    max_overhead: float,
    allow_unknown_go: bool,
    runtime: str | None,
    last_s: float | None = None,
    duration_s: float = 0.0,
    format_name: str = "go",
) -> None:
    """With `last_s`, keep the last seconds; else record the next ones, and send the trace."""
    from ebpfprof.commands.tracing import warnings_of
    from ebpfprof.export.formats import FORMATS, TIMELINES
    from ebpfprof.goruntime.open_processes import OpenOptions, OpenProcesses
    from ebpfprof.process.file_opener import WorkerFileOpener
    from ebpfprof.profilers.options import Options
    from ebpfprof.recording.drop_privileges import give_up_before_recording
    from ebpfprof.tracing.flight_recorder import FlightRecorder, send_next
    from ebpfprof.tracing.recorder import TraceOptions, TraceRecorder

    give_up_before_recording(Options(max_overhead=max_overhead), pids=[pid])
    buffer_bytes = _USUAL_BYTES if last_s is None else _KEPT_BYTES
    options = TraceOptions(max_overhead=max_overhead, last_s=last_s, buffer_bytes=buffer_bytes)
    with ExitStack() as held:
        files = held.enter_context(WorkerFileOpener())
        processes = OpenProcesses(files, OpenOptions(allow_unknown_go, runtime))
        go = held.enter_context(processes.open(pid)).go()
        recorder = held.enter_context(TraceRecorder(go, options))
        recorder.load()
        encoders = {name: FORMATS[name].encode_timeline for name in TIMELINES}
        if last_s is None:
            send_next(recorder, duration_s, encoders[format_name], warnings_of(go), channel)
        else:
            FlightRecorder(recorder, encoders, channel).run()
