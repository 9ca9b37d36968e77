"""Who keeps which target recorded: requests, leases, --continuous; and the windows of the past.

A target's probes are in it as long as somebody wants it recorded: a request that waits for its
`seconds`, a lease that a page or a scraper renews, or the server itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from ebpfprof.console.terminal import say
from ebpfprof.console.text import printable
from ebpfprof.continuous.history import make_room
from ebpfprof.continuous.process import Live, LiveTarget, Served
from ebpfprof.errors import (
    EbpfprofError,
    NoSuchProcess,
    NotGoProgram,
    TargetGone,
    UnsupportedTarget,
)
from ebpfprof.profile.delta import difference

if TYPE_CHECKING:
    from ebpfprof.discovery.processes import GoProcess
    from ebpfprof.profile.model import Profile

_T = TypeVar("_T")

LOOK_S = 0.25
"""How often it is looked whether targets went and leases ran out, in seconds."""
MAX_GONE = 256
"""Of how many processes that were found and went the past is kept: those that went last."""
_MAX_KEPT_SAMPLES = 200_000  # of all windows together: some 100 MB
_FOREVER = float("inf")


class _NotFoundAgainError(Exception):
    """A process that was found is gone, or has become something else."""


class Recorder:
    """The processes that are served. To be used in one event loop."""

    def __init__(
        self,
        live: Live,
        *,
        kinds: Iterable[str],
        interval_s: float = 5.0,
        retention_s: float = 600.0,
        continuous: bool = False,
    ) -> None:
        self.live = live
        self.kinds = tuple(kinds)
        self.interval_s = interval_s
        self.retention_s = retention_s
        self.continuous = continuous
        self.stopping = asyncio.Event()
        self._served: dict[int, Served] = {}
        self._releases: set[asyncio.Task[None]] = set()

    @property
    def served(self) -> list[Served]:
        """All that are served, by pid, with those that went lately."""
        return sorted(self._served.values(), key=lambda each: each.pid)

    def find(self, pid: int) -> Served | None:
        """The process of that number, if it is served."""
        return self._served.get(pid)

    def serve_opened(self, live: LiveTarget, about: GoProcess | None = None) -> Served:
        """Serve a process that LiveSession.add has opened."""
        kinds = tuple(live.kinds)
        return self._serve(Served(live.pid, kinds, about, live=live, opened_name=live.name))

    def serve_found(self, about: GoProcess) -> Served:
        """Serve a Go process that was found; it is opened when somebody asks for it.

        It takes the place of one of that number that has gone.
        """
        return self._serve(Served(about.pid, self.kinds, about, is_found=True))

    def note_ending(self, served: Served, ending: str) -> None:
        """The process has gone; `ending` says how."""
        if served.ending is None:
            served.ending, served.gone_s = ending, time.time()
            served.gone.set()
            self._end_lease(served)
            self._in_background(self._let_go(served))

    def lease(self, served: Served, length_s: float) -> None:
        """Keep a process recorded for so many seconds from now, or for ever (inf)."""
        served.leased_until_s = max(served.leased_until_s, time.monotonic() + length_s)
        if not served.is_leased and served.ending is None:
            served.is_leased = True
            self._in_background(self._begin_lease(served))

    @asynccontextmanager
    async def recording(self, served: Served) -> AsyncIterator[None]:
        """Have a process recorded while the block runs. Raises ebpfprof.errors."""
        # Shielded: who goes meanwhile must not leave a probe behind that nobody takes out.
        await self._whatever_happens(self._acquire(served), undo=lambda: self._release(served))
        try:
            yield
        finally:
            await self._whatever_happens(self._release(served))

    async def wait(
        self, served: Served, seconds: float, client_left: Callable[[], Awaitable[None]]
    ) -> bool:
        """Wait so long; shorter if the process goes, the server ends or the client left.

        Returns whether the client is still there.
        """
        left = asyncio.ensure_future(client_left())
        waiting = [
            left,
            asyncio.ensure_future(served.gone.wait()),
            asyncio.ensure_future(self.stopping.wait()),
        ]
        try:
            await asyncio.wait(
                waiting, timeout=max(seconds, 0), return_when=asyncio.FIRST_COMPLETED
            )
            return not left.done()
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def snapshot(self, served: Served, kind: str) -> Profile:
        """The sums of waits of one kind since the process was first recorded.

        Raises TargetGone.
        """
        return (await asyncio.to_thread(self._sums, served, (kind,)))[kind]

    async def begin(self, served: Served, kind: str) -> Callable[[], Awaitable[Profile]]:
        """A function that returns what comes of one kind from now on, until it is called.

        Both raise TargetGone.
        """
        if kind == "cpu":
            samples = await asyncio.to_thread(self._begin_samples, served)
            return lambda: asyncio.to_thread(self._sampled, served, samples)
        before = await self.snapshot(served, kind)

        async def since() -> Profile:
            after = await self.snapshot(served, kind)
            return await asyncio.to_thread(difference, after, before)

        return since

    async def end_window(self, served: Served, *, at_least_s: float = 0.0) -> None:
        """End the present window of a process now, unless it is younger than `at_least_s`."""
        async with served.lock:
            if served.users and time.time() - served.windows.begun_s > at_least_s:
                await self._end_window(served)

    async def run(self) -> None:
        """Look after all of them until the server ends."""
        next_window_s = time.monotonic() + self.interval_s
        while not self.stopping.is_set():
            for served in self.served:
                live = served.live
                if live and live.ending and served.ending is None:
                    await self.end_window(served)
                    self.note_ending(served, live.ending.text)
            if time.monotonic() >= next_window_s:
                next_window_s += self.interval_s
                await self._end_windows()
            self._end_leases()
            self._forget_gone()
            with suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), LOOK_S)

    async def stop(self) -> None:
        """End all waiting, and all leases."""
        self.stopping.set()
        for served in self.served:
            served.leased_until_s = 0.0
        self._end_leases()
        while self._releases:
            await asyncio.wait(self._releases)

    def _serve(self, served: Served) -> Served:
        self._served[served.pid] = served
        if self.continuous:
            self.lease(served, _FOREVER)
        return served

    async def _begin_lease(self, served: Served) -> None:
        try:
            await self._acquire(served)
        except EbpfprofError as error:
            served.is_leased = False
            if not isinstance(error, TargetGone):  # which `ending` tells
                served.problem = printable(str(error))
                if served.problem != served.said:
                    say(f"ebpfprof: {served.problem}", err=True)
                served.said = served.problem
            return
        served.holds_lease = True
        if served.ending is not None or self.stopping.is_set():
            self._end_lease(served)

    def _end_leases(self) -> None:
        for served in self.served:
            if time.monotonic() > served.leased_until_s:
                self._end_lease(served)

    def _end_lease(self, served: Served) -> None:
        if served.holds_lease:
            served.is_leased = served.holds_lease = False
            self._in_background(self._release(served))

    async def _acquire(self, served: Served) -> None:
        async with served.lock:
            if served.ending is not None:
                raise TargetGone(f"Nothing is recorded any more: {served.ending}.")
            if served.users == 0:
                try:
                    await asyncio.to_thread(self._start, served)
                except _NotFoundAgainError as error:
                    ending = f"process {served.pid} ended or replaced itself by another program"
                    self.note_ending(served, ending)
                    raise TargetGone(f"Nothing was recorded: {ending}.") from error
                served.since_s = time.monotonic()
                served.windows.begin(time.time())
            served.users += 1

    async def _release(self, served: Served) -> None:
        async with served.lock:
            served.users -= 1
            if served.users == 0 and served.live:
                await asyncio.to_thread(self.live.stop, served.live)
                if served.ending is None:
                    await self._end_window(served)
        if served.ending is not None:
            await self._let_go(served)

    async def _let_go(self, served: Served) -> None:
        """Make room for others once a process went and nobody asks for it any more."""
        async with served.lock:
            if served.users == 0 and served.live:
                live, served.live, served.samples = served.live, None, None
                served.windows.sums.clear()
                served.last_sent.clear()
                await asyncio.to_thread(self.live.remove, live)

    def _start(self, served: Served) -> None:
        if served.live is None:
            served.live = self._opened(served)
            served.opened_name = served.live.name
        if served.samples is None:
            served.samples = self.live.begin(served.live)
        self.live.start(served.live)

    def _opened(self, served: Served) -> LiveTarget:
        """Open a process that was found some time ago. Raises TargetGone if it is not that now."""
        try:
            live: LiveTarget = self.live.add(served.pid)
        except (NoSuchProcess, UnsupportedTarget, NotGoProgram, TargetGone) as error:
            raise _NotFoundAgainError from error
        if set(live.kinds) != set(served.kinds):  # no Go program any more
            self.live.remove(live)
            raise _NotFoundAgainError
        return live

    def _sums(self, served: Served, kinds: Collection[str]) -> dict[str, Profile]:
        profiles = self.live.snapshot(_live(served), kinds).profiles
        return {profile.kind: profile for profile in profiles}

    def _begin_samples(self, served: Served) -> Any:  # noqa: ANN401
        return self.live.begin(_live(served))

    def _sampled(self, served: Served, samples: Any, *, restart: bool = False) -> Profile:  # noqa: ANN401
        (profile,) = self.live.read(_live(served), samples, restart=restart).profiles
        return profile

    async def _end_window(self, served: Served) -> None:
        """Needs the lock of the process."""

        def take() -> None:
            sums = self._sums(served, served.kinds)
            new = {}
            if served.samples is not None:
                new["cpu"] = self._sampled(served, served.samples, restart=True)
            served.windows.end(time.time(), sums, new)

        try:
            await asyncio.to_thread(take)
        except EbpfprofError as error:
            say(f"ebpfprof: {printable(str(error))}", err=True)
        make_room([each.windows for each in self._served.values()], _MAX_KEPT_SAMPLES)

    async def _end_windows(self) -> None:
        for served in self.served:
            if self.continuous:  # it may not have been possible before
                self.lease(served, _FOREVER)
            if served.is_recording:
                await self.end_window(served)
            served.windows.forget(time.time() - self.retention_s)

    def _forget_gone(self) -> None:
        """Forget found processes that went and of which there is nothing to show, or too many.

        Of those that were named it is still told that they went.
        """
        gone = [each for each in self._served.values() if each.is_found and each.is_over]
        # Those without a past first; of the others, those that went first.
        gone.sort(key=lambda each: (bool(each.windows.kept), each.gone_s))
        kept = min(sum(bool(each.windows.kept) for each in gone), MAX_GONE)
        for served in gone[: len(gone) - kept]:
            del self._served[served.pid]

    async def _whatever_happens(
        self, work: Awaitable[_T], undo: Callable[[], Awaitable[None]] | None = None
    ) -> _T:
        """Do `work` to its end even if whoever asked is cancelled; then `undo` it, too."""
        task = asyncio.ensure_future(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if undo:
                self._in_background(self._undo(task, undo))
            else:
                self._keep(task)
            raise

    async def _undo(self, task: asyncio.Future[Any], undo: Callable[[], Awaitable[None]]) -> None:
        with suppress(Exception):
            await task
            await undo()

    def _in_background(self, work: Awaitable[None]) -> None:
        self._keep(asyncio.ensure_future(work))

    def _keep(self, task: Any) -> None:  # noqa: ANN401
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)


def _live(served: Served) -> LiveTarget:
    if served.live is None:
        raise TargetGone(f"Process {served.pid} was not recorded yet.")
    return served.live
