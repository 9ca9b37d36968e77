"""Keeps the last seconds of a process for another process, which asks for them over a channel.

Requests are {"format": "go", "last_s": 5.0}; each one comes after the answer to the one before.
What is sent:

{"recording": true}                 once, when the probes are attached
{"lost_ns": 1200.5}                 now and then: the CPU time that it took the process so far
{"answer": {"result": ["x"]}}       what is missing in a trace; its bytes come with the frame
{"answer": {"error": ...}}          why there is none (ebpfprof.system.channel)
{"left": "go", "answer": ...}       when the process has ended: its last seconds, in each format
{"failed": {"error": ...}}          why it ends early
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any, Final

from ebpfprof.system.channel import ChannelError, failure
from ebpfprof.tracing.timelines import timeline_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ebpfprof.system.channel import MessageChannel
    from ebpfprof.timeline.model import Timeline
    from ebpfprof.tracing.recorder import TraceRecorder

_REPORTS_EVERY_S: Final = 1.0


class FlightRecorder:
    """Answers for one recorder, which keeps the last seconds and is loaded."""

    def __init__(
        self,
        recorder: TraceRecorder,
        encoders: Mapping[str, Callable[[Timeline], bytes]],
        channel: MessageChannel,
    ) -> None:
        """`encoders` by the names of formats; who asks is at the other end of the `channel`."""
        self._recorder, self._encoders, self._channel = recorder, encoders, channel
        self._is_over = False  # the other process has ended
        self._sending = threading.Lock()
        self._thread: threading.Thread | None = None
        self._reported_s = 0.0

    def run(self) -> None:
        """Record until the process ends, or until the other process does.

        Raises what recording raises, or TargetGone.
        """
        recorder = self._recorder
        recorder.start()
        self._send({"recording": True})
        recorder.record(math.inf, self._attend)
        recorder.stop()
        if self._thread and not self._is_over:
            self._thread.join()
        if recorder.ending:
            self._send_what_is_left()
        elif recorder.failure:
            raise recorder.failure

    def _attend(self, gone_s: float) -> bool:
        """Have a request answered in a thread, if there is one; whether the other has ended."""
        if gone_s >= self._reported_s + _REPORTS_EVERY_S:
            self._reported_s = gone_s
            if not self._sending.locked():  # a parent that is slow must not stop the recording
                self._send({"lost_ns": self._recorder.lost_ns()})
        if not self._is_over and self._channel.has_frame():
            try:
                request = self._channel.receive().message
            except ChannelError:
                self._is_over = True
            else:
                self._thread = threading.Thread(
                    target=self._answer, kwargs=request, name="ebpfprof-answer", daemon=True
                )
                self._thread.start()
        return self._is_over

    def _answer(self, format: str, last_s: float | None) -> None:
        try:
            timeline = timeline_of(self._recorder.recorded(last_s))
            data = self._encoders[format](timeline)
        except Exception as error:  # whatever it is: the recording continues
            self._send({"answer": failure(error)})
        else:
            self._send({"answer": {"result": timeline.comments}}, data)

    def _send_what_is_left(self) -> None:
        timeline = timeline_of(self._recorder.recorded())
        for name, encode in self._encoders.items():
            if not self._is_over:
                answer = {"result": timeline.comments}
                self._send({"left": name, "answer": answer}, encode(timeline))

    def _send(self, message: Mapping[str, Any], data: bytes = b"") -> None:
        try:
            with self._sending:
                self._channel.send(message, data=data)
        except ChannelError:
            self._is_over = True


def send_next(
    recorder: TraceRecorder,
    duration_s: float,
    encode: Callable[[Timeline], bytes],
    warnings: Sequence[str],
    channel: MessageChannel,
) -> None:
    """Record for that long, or until any message comes, and send the trace as an answer.

    `warnings` become comments. Raises what recording raises, or ChannelError.
    """
    recorder.start()
    recorder.record(duration_s, lambda gone_s: channel.has_frame())
    recorder.stop()
    if recorder.failure:
        raise recorder.failure
    timeline = timeline_of(recorder.recorded())
    data = encode(timeline)
    channel.send({"answer": {"result": [*warnings, *timeline.comments]}}, data=data)
