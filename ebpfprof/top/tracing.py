"""The execution trace that `ebpfprof top` writes at a key, recorded beside its profiles."""

from __future__ import annotations

import shlex
import threading
import time
from math import ceil, inf
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ebpfprof.console.output_file import default_name
from ebpfprof.console.text import duration, printable
from ebpfprof.errors import NotGoProgram
from ebpfprof.export.formats import FORMATS
from ebpfprof.system.closing import Closing
from ebpfprof.tracing.recorder import TraceRecorder
from ebpfprof.tracing.writer import TraceWriter, write_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ebpfprof.recording.target import LiveTarget
    from ebpfprof.tracing.recorder import TraceOptions
    from ebpfprof.tracing.writer import WrittenTrace

KEY: Final = "T"
NEXT_S: Final = 5.0
"""How long a trace is where the last seconds are not kept."""
_GO: Final = FORMATS["go"]
_TICK_S: Final = 0.05
_NOT_GO: Final = "Only Go programs can be traced, and this process is not one."


class TopTrace(Closing):
    """Traces the process that is shown: of its last seconds, or of the next ones.

    All work is done in threads. A context manager: leaving it ends all traces.
    """

    def __init__(self, targets: Sequence[LiveTarget], options: TraceOptions) -> None:
        """With TraceOptions.last_s, the last seconds are kept from start() on."""
        self._targets, self._options = targets, options
        self._closing = self._is_asked = False
        self._lock = threading.Lock()  # of the two below
        self._recorder: TraceRecorder | None = None
        self._lost_ns = 0.0  # to traces that are over
        self._thread: threading.Thread | None = None
        self.notify: Callable[[str], None] = lambda _: None
        """Takes messages for the user, from any thread."""
        self.state = ""
        """What is recorded, for the header; "" if nothing is."""
        self.failure = ""
        """Why the last seconds are not kept any longer, in a sentence; "" if they are."""

    @property
    def lost_ns(self) -> float:
        """The CPU time that the process has spent on traces, estimated."""
        with self._lock:
            return self._lost_ns + (self._recorder.lost_ns() if self._recorder else 0.0)

    def start(self) -> None:
        """Begin to keep the last seconds.

        Raises NotGoProgram, AttachFailed, TargetGone, and what else loading and attaching raises.
        """
        if self._targets[0].recorded.go is None:
            raise NotGoProgram(_NOT_GO)
        recorder = self._opened()
        recorder.start()
        self.state = f"trace: last {self._options.last_s:g} s"
        self._begin(lambda: self._keep(recorder))

    def press(self) -> None:
        """Write the last seconds; or else record the next ones, or end that. Does not wait."""
        is_recording = self._thread is not None and self._thread.is_alive()
        if is_recording:
            self._is_asked = True
        elif why := self._why_not():
            self.notify(why)
        else:
            self._is_asked = False
            self._begin(self._record_next)

    def close(self) -> None:
        """End all traces; what is being written is written."""
        self._closing = True
        if self._thread:
            self._thread.join()
        self._close_recorder()

    def _begin(self, work: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=work, name="ebpfprof-top-trace", daemon=True)
        self._thread.start()

    def _why_not(self) -> str:
        if len(self._targets) != 1:
            return "A trace covers one process: start top with one, or run ebpfprof trace PID."
        if self._targets[0].recorded.go is None:
            return _NOT_GO
        if self._targets[0].ending:
            return "The process has ended and can't be traced."
        return ""

    def _opened(self) -> TraceRecorder:
        """A recorder with its program loaded, which _close_recorder() closes."""
        go = self._targets[0].recorded.go
        assert go
        recorder = TraceRecorder(go, self._options)
        try:
            recorder.load()
        except BaseException:  # Ctrl-C too: no probe may stay
            recorder.close()
            raise
        self._recorder = recorder
        return recorder

    def _close_recorder(self) -> None:
        with self._lock:
            recorder, self._recorder = self._recorder, None
            if recorder:
                self._lost_ns += recorder.lost_ns()
        if recorder:
            recorder.close()

    def _keep(self, recorder: TraceRecorder) -> None:
        """Record until the end, and write when asked; also afterwards, what came before."""
        with TraceWriter(recorder, _GO.encode_timeline, suffix=_GO.suffix) as writer:

            def must_end(_: float) -> bool:
                self._attend(writer)
                return self._closing

            failure: Exception | None = None
            try:
                recorder.record(inf, must_end)
                recorder.stop()
                failure = recorder.failure
            except Exception as error:  # whatever it is: the table continues
                failure = error
            self.state = ""
            if failure:
                self.failure = f"The trace ended: {failure}"
            while not self._closing:
                self._attend(writer)
                time.sleep(_TICK_S)

    def _attend(self, writer: TraceWriter) -> None:
        if written := writer.taken():
            self.notify(_sentence(written))
        if self._is_asked and not writer.is_busy:
            self._is_asked = False
            self.notify("Writing the trace...")
            writer.write(self._path())

    def _record_next(self) -> None:
        self.state = f"trace: {NEXT_S:g} s"
        try:
            self.notify("Attaching to trace...")
            recorder = self._opened()
            recorder.start()
            recorder.record(NEXT_S, self._must_end)
            recorder.stop()
            if not self._closing:
                self.notify("Writing the trace...")
                self.notify(
                    _sentence(write_trace(recorder, _GO.encode_timeline, self._path(), _GO.suffix))
                )
        except Exception as error:  # whatever it is: the table continues
            self.notify(f"No trace was recorded: {error}")
        finally:
            self.state = ""
            self._close_recorder()

    def _must_end(self, gone_s: float) -> bool:
        """Count down."""
        if (left_s := ceil(NEXT_S - gone_s)) != self._left_s:
            self._left_s = left_s
            self.notify(f"Tracing: {left_s} s to go. {KEY} ends and writes it now.")
        return self._closing or self._is_asked

    _left_s = 0

    def _path(self) -> Path:
        target = self._targets[0]
        return Path(
            default_name(target.name, target.pid, _GO.timeline_ending, time.localtime(), "")
        )


def _sentence(written: WrittenTrace) -> str:
    """Where the file is, how to open it, and what is missing in it."""
    if written.failure:
        return f"Not written: {written.failure}"
    name = printable(written.name)
    opened_by = _GO.opens_timeline.format(printable(shlex.quote(written.name)))
    missing = "".join(f" ({comment})" for comment in written.comments)
    return f"Written: {name}, {duration(written.length_ns)}. Next: {opened_by}{missing}"
