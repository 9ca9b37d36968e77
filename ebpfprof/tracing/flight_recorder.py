"""Keeps the last seconds of a process for another program, which asks for them over two pipes.

Each message is a line of JSON. Those that have "bytes" are followed by so many bytes, a file.
Requests are {"format": "go", "last_s": 5.0}, one after the other: the next one after the answer to
the one before. What comes back:

{"recording": true}                     once, when the probes are attached
{"lost_ns": 1200.5}                     now and then: the CPU time that it took the process so far
{"answer": "go", "comments": ["x"], "bytes": 12}
                                        a file, and what is missing in it
{"answer": "go", "error": "Sentence."}  why there is none
{"left": "go", "comments": ["x"], "bytes": 12}
                                        when the process has ended: its last seconds, in each format
"""

from __future__ import annotations

import json
import math
import os
import threading
from typing import IO, TYPE_CHECKING, Any, Final

from ebpfprof.tracing.timelines import timeline_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ebpfprof.timeline.model import Timeline
    from ebpfprof.tracing.recorder import TraceRecorder

_TELLS_EVERY_S: Final = 1.0
_MOST_READ: Final = 1 << 16


class FlightRecorder:
    """Answers for one recorder, which keeps the last seconds and is loaded."""

    def __init__(
        self,
        recorder: TraceRecorder,
        encoders: Mapping[str, Callable[[Timeline], bytes]],
        requests: int,
        answers: IO[bytes],
    ) -> None:
        """`encoders` by the names of formats; `requests` is the descriptor of a pipe."""
        self._recorder, self._encoders = recorder, encoders
        self._requests, self._answers = requests, answers
        os.set_blocking(requests, False)
        self._received = b""
        self._is_over = False  # nobody is there who asks
        self._sending = threading.Lock()
        self._thread: threading.Thread | None = None
        self._told_s = 0.0

    def run(self) -> None:
        """Record until the process ends, or until the other program does.

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
        """Look for a request, and have it answered in a thread; whether nobody asks any more."""
        if gone_s >= self._told_s + _TELLS_EVERY_S:
            self._told_s = gone_s
            if not self._sending.locked():  # a parent that is slow must not stop the recording
                self._send({"lost_ns": self._recorder.lost_ns()})
        if request := self._next_request():
            self._thread = threading.Thread(
                target=self._answer, args=(request,), name="ebpfprof-answer", daemon=True
            )
            self._thread.start()
        return self._is_over

    def _next_request(self) -> Mapping[str, Any] | None:
        try:
            received = os.read(self._requests, _MOST_READ)
        except BlockingIOError:
            return None
        self._is_over = self._is_over or not received
        self._received += received
        line, is_whole, rest = self._received.partition(b"\n")
        if not is_whole:
            return None
        self._received = rest
        request: Mapping[str, Any] = json.loads(line)
        return request

    def _answer(self, request: Mapping[str, Any]) -> None:
        name = request["format"]
        try:
            timeline = timeline_of(self._recorder.recorded(request["last_s"]))
            message = {"answer": name, "comments": timeline.comments}
            self._send(message, self._encoders[name](timeline))
        except Exception as error:  # whatever it is: the recording goes on
            self._send({"answer": name, "error": str(error) or repr(error)})

    def _send_what_is_left(self) -> None:
        timeline = timeline_of(self._recorder.recorded())
        for name, encode in self._encoders.items():
            if not self._is_over:
                self._send({"left": name, "comments": timeline.comments}, encode(timeline))

    def _send(self, message: dict[str, Any], file: bytes | None = None) -> None:
        if file is not None:
            message["bytes"] = len(file)
        try:
            with self._sending:
                self._answers.write(json.dumps(message).encode() + b"\n" + (file or b""))
                self._answers.flush()
        except OSError:
            self._is_over = True
