"""What was recorded of a process: since its first recording, from now on, and by windows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ebpfprof.console.terminal import say
from ebpfprof.console.text import in_one_line, printable
from ebpfprof.continuous.history import Window, limit_size, together
from ebpfprof.errors import EbpfprofError
from ebpfprof.profile.delta import difference
from ebpfprof.profilers.registry import kind_named

if TYPE_CHECKING:
    from ebpfprof.continuous.history import History
    from ebpfprof.continuous.process import Live, RecordedProcess
    from ebpfprof.profile.model import Profile

_MAX_SAMPLES = 200_000  # of all windows together: about 100 MB


OnWindow = Callable[["RecordedProcess", Window], None]


def notify_user(sentence: str) -> None:
    """Say on stderr what is wrong."""
    say(f"ebpfprof: {sentence}", err=True)


class NotRecordedError(EbpfprofError):
    """Nothing was recorded in the time that was asked for; the message is a sentence."""


class Readings:
    """Reads profiles of processes. Kinds are given by their names.

    `histories` gives those of all processes: together they use a bounded amount of memory.
    """

    def __init__(
        self,
        live: Live,
        histories: Callable[[], Iterable[History]],
        on_window: OnWindow | None = None,
        notify: Callable[[str], None] = notify_user,
    ) -> None:
        """For `on_window` and `notify` see Manager."""
        self._live = live
        self._histories = histories
        self._on_window = on_window
        self._notify = notify

    async def snapshot(self, process: RecordedProcess, kind: str) -> Profile:
        """The profile since the process was first recorded, of a kind that has one.

        Raises TargetGone if the process was never recorded, or is closed.
        """
        return await asyncio.to_thread(self._labelled_until_now, process, kind)

    async def begin(self, process: RecordedProcess, kind: str) -> Callable[[], Awaitable[Profile]]:
        """A function that returns what was recorded from now until it is called.

        Both raise TargetGone as snapshot does.
        """
        since = await asyncio.to_thread(self._sums, process, (kind,))

        async def until_now() -> Profile:
            return await asyncio.to_thread(self._labelled_until_now, process, kind, since)

        return until_now

    async def since_last(self, process: RecordedProcess, kind: str) -> Profile:
        """What was recorded since the last call for this process and kind, by any caller.

        The first call returns all since the process was first recorded.
        Raises TargetGone as snapshot does.
        """
        profile = await asyncio.to_thread(self._until_now, process, kind)
        new = await self.since_last_read(process, profile)
        return await asyncio.to_thread(process.labelled, new)

    async def since_last_read(self, process: RecordedProcess, profile: Profile) -> Profile:
        """What is new in a profile of the process since the last call for its kind."""
        last = process.last_read.get(profile.kind)
        process.last_read[profile.kind] = profile
        of_moment = kind_named(profile.kind).of_moment
        if last is None:
            return profile
        return await asyncio.to_thread(difference, profile, last, of_moment=of_moment)

    async def between(
        self,
        process: RecordedProcess,
        kind: str,
        from_s: float,
        to_s: float,
        *,
        has_slices: bool = False,
    ) -> Profile:
        """What the history has of a time (Unix), of windows that lie in it, wholly or in part.

        Of a kind that shows a moment, the last one. For `has_slices` see together(). Raises
        NotRecordedError.
        """
        windows = process.history.between(kind, from_s, to_s)
        if not windows:
            raise NotRecordedError(
                f"Process {process.pid} was not recorded in that time"
                + (f": {process.ending}." if process.ending else " (yet).")
            )
        whole = await asyncio.to_thread(together, kind, windows, has_slices=has_slices)
        return await asyncio.to_thread(process.labelled, whole)

    async def read_window(self, process: RecordedProcess, *, at_least_s: float) -> None:
        """Read what the present window has so far; it continues.

        Does nothing if it began or was read less than `at_least_s` ago, or if the process is not
        being recorded. What can't be read is reported.
        """
        async with process.lock:
            if process.users and time.time() - process.history.read_s > at_least_s:
                try:
                    await asyncio.to_thread(self._read_window, process)
                except EbpfprofError as error:
                    self._notify(printable(str(error)))

    async def end_window(self, process: RecordedProcess) -> None:
        """End the present window now. Does nothing if the process is not being recorded."""
        async with process.lock:
            if process.users:
                await self.end_locked_window(process)

    async def end_locked_window(self, process: RecordedProcess) -> None:
        """The same for a caller that holds the lock of the process, recorded or not.

        What can't be read is reported.
        """
        try:
            await asyncio.to_thread(self._end_window, process)
        except EbpfprofError as error:
            self._notify(printable(in_one_line(str(error))))
        if self._on_window:
            process.history.windows.clear()
        limit_size(list(self._histories()), _MAX_SAMPLES)

    def _read_window(self, process: RecordedProcess) -> None:
        whole, window = self._profiles(process, self._sums(process))
        process.history.read(time.time(), whole, window)

    def _end_window(self, process: RecordedProcess) -> None:
        now = self._sums(process)
        window = process.history.end(time.time(), *self._profiles(process, now))
        process.window_began = now
        if self._on_window:
            profiles = {kind: process.labelled(one) for kind, one in window.profiles.items()}
            self._on_window(process, replace(window, profiles=profiles))

    def _profiles(
        self,
        process: RecordedProcess,
        now: Any,  # noqa: ANN401 - sums of a LiveSession, only passed on
    ) -> tuple[dict[str, Profile], dict[str, Profile]]:
        """By kind, the profiles since the first recording, and those of the present window."""
        reports = self._live.report(now), self._live.report(now, process.window_began)
        whole, window = (
            {profile.kind: profile for profile in report.profiles} for report in reports
        )
        return whole, window

    def _sums(self, process: RecordedProcess, kinds: Collection[str] | None = None) -> Any:  # noqa: ANN401 - sums of a LiveSession, only passed on
        return self._live.sums(process.require_target(), kinds)

    def _until_now(
        self,
        process: RecordedProcess,
        kind: str,
        since: Any = None,  # noqa: ANN401 - sums of a LiveSession, only passed on
    ) -> Profile:
        report = self._live.report(self._sums(process, (kind,)), since)
        return next(profile for profile in report.profiles if profile.kind == kind)

    def _labelled_until_now(
        self,
        process: RecordedProcess,
        kind: str,
        since: Any = None,  # noqa: ANN401 - sums of a LiveSession, only passed on
    ) -> Profile:
        return process.labelled(self._until_now(process, kind, since))
