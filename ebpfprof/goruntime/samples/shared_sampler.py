"""Samples of all goroutines of a target at random times, for several users."""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ebpfprof.errors import EbpfprofError, TargetGone
from ebpfprof.goruntime.goroutines.states import LOCK_WORDS
from ebpfprof.goruntime.goroutines.table import MAX_GOROUTINES
from ebpfprof.goruntime.process import for_user
from ebpfprof.goruntime.samples.sampler import GoroutineSampler
from ebpfprof.goruntime.samples.sampling_thread import SampledTarget
from ebpfprof.goruntime.waits.idle_holders import lock_holders
from ebpfprof.goruntime.waits.standing import LOCKED_OUT, OPEN_WAIT
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.profile.losses import Loss
from ebpfprof.system.closing import Closing
from symbolizer.errors import SymbolizerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ebpfprof.goruntime.goroutines.parked import ParkedGoroutine
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.goruntime.samples.sampling_thread import SamplingRate, SamplingThread
    from ebpfprof.goruntime.samples.state_sums import GoroutineState, StateTotals
    from ebpfprof.profile.behaviour import IdleBehaviour

    IdleStates = dict[GoroutineState, IdleBehaviour]

_BEYOND: Final = "goroutines that were not read: there are too many"
_UNLABELLED: Final = "goroutines without labels: they could not be read"
_HOLDERS_S: Final = 5.0  # between two reads of the holders of locks
_NONE_S: Final = 1.0  # the same while no goroutine waits long for a lock
_HOLDERS_CPU: Final = 0.02  # of a processor, for these reads
_LAST_SAMPLES: Final = 6
_LAST_SAMPLES_APART_S: Final = 0.005  # on average


class SharedSampler(Closing):
    """Samples one target, for as long as there are users. Any thread may use it.

    A context manager: leaving it ends the samples and closes the target's memory; sums stay.
    """

    def __init__(
        self,
        go: GoTarget,
        *,
        rate: SamplingRate,
        has_labels: bool,
        has_semaphores: bool = False,
        thread: SamplingThread,
        most: int = MAX_GOROUTINES,
    ) -> None:
        """Have the `thread` take samples at this `rate`, or fewer if that costs much.

        Keep `most` goroutines and states at most.
        """
        self._most = most
        self._go, self._rate, self._thread = go, rate, thread
        self._has_labels, self._has_semaphores = has_labels, has_semaphores
        self._lock = threading.Lock()
        self._users = 0
        self._sampler: GoroutineSampler | None = None
        self._turns = SampledTarget(rate, self._sample, self._fail)
        self._is_sampling = False
        self._idle: IdleStates = {}
        self._holders: frozenset[int] | None = None
        self._holders_due_s = 0.0  # time.monotonic()
        self._holders_of_ns = 0  # the last sample by which nobody needed them
        self.failure: Exception | None = None
        """The error that ended the samples early; None without one."""

    def start(self) -> int:
        """Begin, for one more user. Returns when the samples began (CLOCK_MONOTONIC, ns).

        Raises TargetGone, PermissionDenied, UnreadableMemory, or what for_user makes of a
        GoTableError: there is no list of goroutines.
        """
        with self._lock:
            if self._users == 0:
                self._begin()
            self._users += 1
            return kernel_now_ns()

    def count_from(self, at_ns: int) -> None:
        """The recording begins at `at_ns` (CLOCK_MONOTONIC): see counted()."""
        with self._lock:
            if self._is_sampling:
                self.sampler.count_from(at_ns)

    def refresh(self) -> None:
        """Take a sample now: with very many goroutines, samples are seconds apart."""
        if self._is_sampling:
            with suppress(EbpfprofError):  # the thread's next sample reports it
                self.sampler.sample()

    def end_at(self, at_ns: int) -> None:
        """The recording ends at `at_ns` (CLOCK_MONOTONIC): no later time counts.

        Returns at once; stop() takes the last sample.
        """
        with self._lock:
            if self._is_sampling:
                self.sampler.end_at(at_ns)

    def stop(self) -> None:
        """End the samples of one user, with a last sample; the sums stay."""
        with self._lock:
            self._users = max(0, self._users - 1)
            if self._users == 0:
                self._end()
            elif self._sampler:
                with suppress(EbpfprofError):  # the thread's next sample reports it
                    self._sampler.sample()

    @property
    def has_begun(self) -> bool:
        """Whether there were samples."""
        return self._sampler is not None

    @property
    def sampler(self) -> GoroutineSampler:
        """What took the samples. Raises AssertionError before the first start()."""
        assert self._sampler is not None
        return self._sampler

    @property
    def late_ns(self) -> float:
        """How much later than planned samples came, on average."""
        return self._turns.late_ns

    def totals(self) -> StateTotals:
        """The sums of all samples so far. Raises AssertionError before the first start()."""
        return self.sampler.totals()

    def counted(self) -> StateTotals:
        """The sums of the recorded time alone. Raises AssertionError before the first start()."""
        return self.sampler.counted()

    def losses(self) -> Sequence[Loss]:
        """The goroutines that were not read, and labels."""
        if not self.has_begun:
            return ()
        counts = (
            ("goroutines_beyond", _BEYOND, self.sampler.beyond),
            ("labels_unread", _UNLABELLED, self.sampler.states.unlabelled),
        )
        return [Loss(*count) for count in counts if count[2]]

    def poll(self) -> None:
        """Read which goroutines may hold a lock, if that is due: call it some times a second."""
        with self._lock:
            if self._is_sampling:
                self._read_holders()

    def idle(self) -> IdleStates:
        """The waits that are idle by behaviour; after the samples, those of their end.

        A goroutine that may hold a lock that others wait for is not among them, as far as the last
        poll() knows.
        """
        with self._lock:
            return self._idle_now() if self._is_sampling else self._idle

    def standing(self, parked: Iterable[ParkedGoroutine]) -> dict[int, int]:
        """Take some more samples, and return what GoroutineSampler.standing returns of `parked`.

        With very many goroutines, the samples of a recording are seconds apart.
        """
        with suppress(EbpfprofError):  # the samples so far have to do
            for _ in range(_LAST_SAMPLES):
                self.sampler.sample()
                pause_s = random.expovariate(1 / _LAST_SAMPLES_APART_S)
                time.sleep(pause_s)  # goroutines that are not stuck need time to move
        return self.sampler.standing(list(parked), OPEN_WAIT)

    def close(self) -> None:
        """End the samples; the sums stay."""
        with self._lock:
            self._users = 0
            self._end()

    def _begin(self) -> None:
        try:
            if self._sampler is None:
                self._sampler = GoroutineSampler(
                    self._go,
                    has_labels=self._has_labels,
                    has_semaphores=self._has_semaphores,
                    most=self._most,
                )
        except SymbolizerError as error:
            raise for_user(self._go.target, error, self._go.path) from error
        self._sampler.sample()  # of no typical cost: every goroutine is new
        self.failure = None
        self._turns = SampledTarget(self._rate, self._sample, self._fail)
        self._thread.join(self._turns)
        self._is_sampling = True

    def _end(self) -> None:
        if not self._is_sampling:
            return
        self._thread.leave(self._turns)
        self._is_sampling = False
        try:
            self.sampler.sample()
        except EbpfprofError as error:
            self._fail(error)
        if self._holders is None:
            self._holders_due_s = 0.0
        self._read_holders()
        self._idle = self._idle_now()
        self.sampler.pause()

    def _idle_now(self) -> IdleStates:
        idle = self.sampler.idle()
        standing = self.sampler.standing_states(LOCKED_OUT) if idle else {}
        if not any(state.word in LOCK_WORDS for state in standing):
            return {state: behaviour for state, (behaviour, _) in idle.items()}
        holders = self._holders
        if holders is None:  # then each may be one
            return {}
        return {
            state: behaviour for state, (behaviour, goids) in idle.items() if not goids & holders
        }

    def _read_holders(self) -> None:
        """Read which goroutines may hold a lock, if others wait for one long, and that is due."""
        now_s, sampled_ns = time.monotonic(), self.sampler.sampled_ns
        if now_s < self._holders_due_s or sampled_ns == self._holders_of_ns:
            return
        standing = self.sampler.standing_states(LOCKED_OUT)
        is_needed = any(state.word in LOCK_WORDS for state in standing)
        self._holders_of_ns = 0 if is_needed else sampled_ns
        self._holders = lock_holders(self._go) if is_needed else None
        took_s = time.monotonic() - now_s
        apart_s = _HOLDERS_S if is_needed else _NONE_S
        self._holders_due_s = now_s + max(apart_s, took_s / _HOLDERS_CPU)

    def _sample(self) -> None:
        self.sampler.sample()

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, TargetGone):  # then it has no goroutines any more
            self.failure = error
