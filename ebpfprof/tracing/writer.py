"""Writes what was recorded until now, in a thread: the recording continues meanwhile."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ebpfprof.console.output_file import OutputFile
from ebpfprof.console.output_folder import invoking_user
from ebpfprof.system.closing import Closing
from ebpfprof.tracing.timelines import timeline_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ebpfprof.timeline.model import Timeline
    from ebpfprof.tracing.recorder import TraceRecorder


class WrittenTrace(NamedTuple):
    """A file that was written, with the timeline's comments; or why it was not."""

    name: str
    length_ns: int
    comments: Sequence[str]
    failure: Exception | None = None


class TraceWriter(Closing):
    """Writes files of one recording, one after the other."""

    def __init__(
        self, recorder: TraceRecorder, encode: Callable[[Timeline], bytes], *, suffix: str
    ) -> None:
        """Of a recording that has begun. `suffix` is that of the file names of the format."""
        self._recorder, self._encode, self._suffix = recorder, encode, suffix
        self._thread: threading.Thread | None = None
        self._written: WrittenTrace | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a file is not written yet, or not reported yet."""
        return self._thread is not None

    def write(self, path: Path) -> None:
        """Begin to write what there is now; into the next free name if the path's is taken.

        Does nothing while one is_busy.
        """
        if not self.is_busy:
            work = threading.Thread(
                target=self._run, args=(path,), name="ebpfprof-trace", daemon=True
            )
            self._thread = work
            work.start()

    def taken(self) -> WrittenTrace | None:
        """What was written since the last call; None while there is nothing."""
        if self._thread is None or self._thread.is_alive():
            return None
        self._thread = None
        return self._written

    def wait(self) -> WrittenTrace | None:
        """The same once it is written; None if nothing is to be written."""
        if self._thread:
            self._thread.join()
        return self.taken()

    def close(self) -> None:
        """Wait until all is written."""
        self.wait()

    def _run(self, path: Path) -> None:
        self._written = write_trace(self._recorder, self._encode, path, self._suffix)


def write_trace(
    recorder: TraceRecorder, encode: Callable[[Timeline], bytes], path: Path, suffix: str
) -> WrittenTrace:
    """Write what was recorded until now; into the next free name if the path's is taken."""
    try:
        timeline = timeline_of(recorder.recorded())
        data = encode(timeline)
        with OutputFile.prepare(
            path, owner=invoking_user(), suffix=suffix, if_taken="number"
        ) as file:
            file.commit(data)
        return WrittenTrace(file.name, timeline.end_ns - timeline.begin_ns, timeline.comments)
    except Exception as error:  # whatever it is: the recording continues
        return WrittenTrace(str(path), 0, (), error)


def stamped(path: Path, suffix: str) -> Path:
    """The path with the time in its name, in front of the suffix: shop-20261126-050102.trace."""
    when = time.strftime("%Y%m%d-%H%M%S")
    return path.with_name(f"{path.name.removesuffix(suffix)}-{when}{suffix}")
