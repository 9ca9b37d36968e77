"""One recording from start to end: targets opened, probes in, waiting, probes out, profiles."""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import ebpfprof
from ebpfprof.collectors.waits import Recipe, StackTotal, Waiting, WaitsCollector
from ebpfprof.errors import AttachFailed
from ebpfprof.losses import Loss
from ebpfprof.profile import Profile, wait_profile
from ebpfprof.target import Ending, Target
from ebpfprof.text import printable

if TYPE_CHECKING:  # what reads executables is imported late, see Session.__init__
    from ebpfprof.gotarget import GoTarget

_TICK_S = 0.1


@dataclass(frozen=True, slots=True)
class Options:
    """How to record; see the command line's options of the same names."""

    kinds: tuple[Waiting, ...] = ("block",)
    block_rate_ns: int = 1
    mutex_fraction: int = 1
    allow_unknown_go: bool = False


@dataclass(slots=True)
class _Recording:
    go: GoTarget
    ending: Ending | None = None
    ended_ns: int = 0
    failure: Exception | None = None


class Session:
    """Records one set of processes once. A context manager: leaving it removes every probe."""

    def __init__(self, pids: Sequence[int], options: Options) -> None:
        """Open and inspect the targets, compile and load the program; nothing is probed yet.

        Raises any of ebpfprof.errors.
        """
        self._options = options
        self._held = contextlib.ExitStack()
        self._recordings: list[_Recording] = []
        try:
            with ThreadPoolExecutor(max_workers=1) as pool:
                # BCC takes some 0.2 s to compile. Meanwhile the libraries that read executables
                # are imported and the executables read, which takes as long.
                loading = pool.submit(WaitsCollector, len(pids), _recipe(options))
                self._held.callback(_close_when_loaded, loading)
                from ebpfprof.gotarget import inspect

                for pid in pids:
                    target = self._held.enter_context(Target(pid))
                    go = inspect(target, allow_unknown_go=options.allow_unknown_go)
                    self._held.enter_context(go.binary.elf)
                    self._recordings.append(_Recording(go))
                self._collector = loading.result()
        except BaseException:
            self._held.close()
            raise

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets, in the order in which they were named."""
        return tuple(recording.go.target for recording in self._recordings)

    def start(self) -> None:
        """Put the probes in. Raises AttachFailed, or TargetGone if a target has gone."""
        for index, recording in enumerate(self._recordings):
            target = recording.go.target
            try:
                self._collector.attach(index, recording.go)
            except AttachFailed:
                target.require_running()  # that it went says more than that the probe failed
                raise
            target.require_running()
        self._started_ns, self._started_unix_ns = time.monotonic_ns(), time.time_ns()

    def wait(self, duration_s: float, should_stop: Callable[[float], bool]) -> None:
        """Let it record until the duration has passed, all targets ended, or told to stop.

        `should_stop` is asked about ten times a second, with the seconds gone so far.
        """
        while any(recording.ending is None for recording in self._recordings):
            gone_s = (time.monotonic_ns() - self._started_ns) / 1e9
            if gone_s >= duration_s or should_stop(gone_s):
                break
            # Not select(): it knows no file descriptors above 1023.
            endings = select.poll()
            for recording in self._recordings:
                if recording.ending is None:
                    endings.register(recording.go.target.pidfd, select.POLLIN)
            endings.poll(1000 * min(_TICK_S, duration_s - gone_s))
            self._notice_endings()

    def finish(self) -> list[tuple[Target, Profile]]:
        """Take the probes out and return the profiles, by target and kind, in order.

        Where names can't be had, a profile holds addresses, and `failures` says why.
        """
        self._notice_endings()
        self._collector.stop()
        stopped_ns = time.monotonic_ns()
        self._collector.detach()
        totals = self._collector.snapshot()
        profiles: list[tuple[Target, Profile]] = []
        for index, recording in enumerate(self._recordings):
            for kind in self._options.kinds:
                mine = [total for total in totals.get(index, []) if total.kind == kind]
                profile = self._profile(recording, kind, mine, recording.ended_ns or stopped_ns)
                profiles.append((recording.go.target, profile))
        return profiles

    def endings(self) -> list[Ending]:
        """Why targets went before the time was over, for those that did."""
        return [r.ending for r in self._recordings if r.ending]

    def assumptions(self) -> list[str]:
        """What is assumed of targets whose Go version is not known: what they show may be wrong."""
        found = (recording.go.assumption for recording in self._recordings)
        return [assumption for assumption in found if assumption]

    def failures(self) -> list[Exception]:
        """Why names are missing in profiles, for those where some are."""
        return [r.failure for r in self._recordings if r.failure]

    def losses(self) -> Sequence[Loss]:
        """What was lost so far, all targets together."""
        return self._collector.losses()

    def close(self) -> None:
        """Remove all probes and let go of the targets."""
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _notice_endings(self) -> None:
        for recording in self._recordings:
            if recording.ending is None:
                recording.ending = recording.go.target.ending()
                recording.ended_ns = time.monotonic_ns() if recording.ending else 0

    def _profile(
        self,
        recording: _Recording,
        kind: Waiting,
        totals: Sequence[StackTotal],
        ended_ns: int,
    ) -> Profile:
        from ebpfprof.gotarget import for_user
        from ebpfprof.stacks import wait_samples

        go = recording.go
        duration_ns = ended_ns - self._started_ns
        samples, cut, failure = wait_samples(go, totals)
        if failure:
            recording.failure = for_user(go.target, failure)
        comments = self._comments(recording, kind, duration_ns)
        if cut:
            comments.append(f"cut off where Go cuts them off, too: the stacks of {cut} events")
        return wait_profile(
            kind,
            samples,
            go.mappings,
            time_ns=self._started_unix_ns,
            duration_ns=duration_ns,
            comments=comments,
        )

    def _comments(self, recording: _Recording, kind: Waiting, duration_ns: int) -> list[str]:
        go = recording.go
        comments = [
            f"ebpfprof {ebpfprof.__version__}: {kind} profile of process {go.target.pid} "
            f"({go.target.name}, {printable(go.binary.version.text)}), {duration_ns / 1e9:.3f} s, "
            + _sampling(kind, self._options),
        ]
        if go.assumption:
            comments.append(go.assumption)
        if recording.failure:
            comments.append(f"names are missing: {printable(str(recording.failure))}")
        if recording.ending:
            comments.append(f"ended early: {recording.ending.text}")
        comments += [f"lost: {loss}" for loss in self.losses()]
        return comments


def _recipe(options: Options) -> Recipe:
    return Recipe(
        block="block" in options.kinds,
        mutex="mutex" in options.kinds,
        block_rate_ns=options.block_rate_ns,
        mutex_fraction=options.mutex_fraction,
    )


def _sampling(kind: Waiting, options: Options) -> str:
    if kind == "block" and options.block_rate_ns > 1:
        return f"sampled at a rate of {options.block_rate_ns} ns"
    if kind == "mutex" and options.mutex_fraction > 1:
        return f"one release in {options.mutex_fraction}, scaled"
    return "every event"


def _close_when_loaded(loading: Future[WaitsCollector]) -> None:
    if loading.exception() is None:
        loading.result().close()
