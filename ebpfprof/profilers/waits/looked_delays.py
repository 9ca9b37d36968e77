"""The delays of waits while probes are not attached all the time: from looks at goroutines.

Windows count waits; but probes make short waits longer, and a window may miss the long ones. Looks
at all goroutines, at random times and without a probe, tell how long goroutines wait, whatever the
length of a wait. So once a recording is scaled, the delays of its block profile are those of looks,
and its counts those of windows. As long as every event was recorded, both are exact.

Go's delay of a wait ends when the goroutine is woken (runtime/chan.go, sema.go: sudog.releasetime),
so the time until it runs again is not in it. As in Go's own profile a wait counts when it ends.

A release is charged what it made others wait. Which release that was only probes know; how much
waiting there is to be charged, looks know better. What probes can't tell is charged to none.

Windows may miss bursts that looks see. If a stack waited more than twice as long as windows make
it, its count is that time over the mean wait that probes saw. Probes make short waits longer, so
these are at least so many; all that is added is in the standard error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ebpfprof.errors import EbpfprofError
from ebpfprof.goruntime.goroutines.states import STATES
from ebpfprof.goruntime.limits import MAX_DEPTH
from ebpfprof.goruntime.waits.standing import HANGING
from ebpfprof.profile.evidence import LEAST_WINDOWS
from ebpfprof.profile.model import Label
from ebpfprof.profilers.waits.locks import lock_use
from ebpfprof.profilers.waits.looked_pairs import pairs_of
from ebpfprof.profilers.waits.rows import KnownStack, StackTotal, Waker
from ebpfprof.profilers.waits.stack_table import OTHER_LOCKS
from ebpfprof.profilers.waits.window_sums import Deviation, WindowCoverage
from symbolizer.errors import SymbolizerError

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.goruntime.samples.shared_sampler import GoroutineLooks
    from ebpfprof.goruntime.samples.state_sums import GoroutineState, StateTotal, StateTotals
    from ebpfprof.profilers.waits.wait_stacks import StackTranslator

_ENOUGH_HITS: Final = 25  # for a standard error of a fifth
_LONG: Final = 3  # times the mean time between looks
_MISSED: Final = 2  # times as long by looks as by windows
_NOT_WAITING: Final = frozenset(STATES.values())
StackTeller = Callable[[tuple[int, ...]], bool]
"""Tells something of a stack, by its return addresses."""
_Key = tuple[int, tuple[int, ...], tuple[Label, ...]]
_Exact = dict[tuple[str, int, tuple[int, ...], tuple[Label, ...]], tuple[float, float]]


@dataclass(slots=True)
class _Waited:
    """What looks found of one stack: the time, the hits, the waits that ended; a variance."""

    ns: float = 0.0
    hits: int = 0
    ended: int = 0
    variance: float = 0.0


@dataclass(slots=True)
class LookedDelays:
    """The delays of one target, from the time on when it is not recorded all the time."""

    looks: GoroutineLooks
    has_wakers: bool = False
    """Whether there are sums by waker, too."""
    has_releases: bool = True
    """Whether releases of locks are recorded."""
    _is_looking: bool = False
    _told: dict[tuple[str, Waker | None, *_Key], tuple[float, int]] = field(default_factory=dict)
    _hanging: dict[GoroutineState, tuple[int, int, int]] = field(default_factory=dict)
    _base: StateTotals | None = None
    _past: dict[_Key, _Waited] = field(default_factory=dict)

    def start(self) -> None:
        """Begin to look. Raises what GoroutineLooks.start raises."""
        self.looks.start()
        self._is_looking = True

    def stop(self) -> None:
        """End the looks, if they have begun; a later start records every event at first."""
        if self._is_looking:
            self._hanging = self.hanging()
            self._is_looking = False
            self.looks.stop()
            if self._base is not None:
                self._past = self._waited()
                self._base = None

    def begin(self) -> None:
        """From now on delays are those of looks, since not every event is recorded any more.

        Look once: what ended before is not of looks, though none has seen that yet.
        """
        with suppress(EbpfprofError):
            self.looks.sampler.look()
        self._base = self.looks.totals()  # not counted(), which may begin to leave out time

    def grown(self, totals: Sequence[StackTotal]) -> list[StackTotal]:
        """The totals, none below what was returned for it before.

        An estimate may turn out to have been too large; but sums that only grow are what readers of
        differences expect.
        """
        found = []
        for total in totals:
            key = total.kind, total.waker, *_key_of(total)
            count, delay_ns = self._told.get(key, (0.0, 0))
            count, delay_ns = max(count, total.count), max(delay_ns, total.delay_ns)
            self._told[key] = count, delay_ns
            found.append(replace(total, count=count, delay_ns=delay_ns))
        return found

    def hanging(self) -> dict[GoroutineState, tuple[int, int, int]]:
        """What goroutines do that have not moved for long, how many, and for how long at least.

        Of the end of the looks, if they have ended.
        """
        if not self._is_looking:
            return self._hanging
        return self.looks.sampler.standing_states(HANGING)

    @property
    def has_begun(self) -> bool:
        """Whether there are delays from looks."""
        return self._base is not None or bool(self._past)

    def applied(
        self,
        totals: Sequence[StackTotal],
        coverage: WindowCoverage,
        exact: Mapping[KnownStack, tuple[float, float]],
        uncharged: Mapping[int, float],
        is_lock: StackTeller,
        is_runtime_lock: StackTeller,
    ) -> tuple[list[StackTotal], WindowCoverage]:
        """The totals of windows with delays from looks, and the coverage with their errors.

        `exact` are the counts and delays (ns) of times in which every event was recorded,
        `uncharged` those of waiting for locks until the ends of windows (WindowSums.uncharged).
        `is_lock` tells whether a stack waits for a lock whose release the mutex profile shows,
        `is_runtime_lock` whether it releases one of the runtime's own.
        """
        waited, mean_ns = self._waited(), self.looks.totals().mean_ns
        factor = coverage.factor if coverage.windows > 1 else 1.0
        known: _Exact = {
            (stack.kind, *_key_of(stack)): sums
            for stack, sums in exact.items()
            if stack.waker is None
        }
        block, missed = _split_by_lock(totals, known, waited, mean_ns)
        locks = _waited_for_locks(block, known, is_lock)
        theirs = [e for e in totals if e.kind == "mutex" and not is_runtime_lock(e.return_pcs)]
        mutex = []
        if self.has_releases:
            mutex = _mutex(theirs, known, locks, uncharged, coverage, mean_ns)
        unknown_ns = sum(each.delay_ns for each in mutex if not each.return_pcs)
        mutex += [
            replace(each, delay_variance=factor * each.delay_variance)
            for each in totals
            if each.kind == "mutex" and is_runtime_lock(each.return_pcs)
        ]
        pairs = pairs_of(block, totals, exact, factor) if self.has_wakers else []
        found = {"block": (block, missed), "mutex": (mutex, 0.0)}
        deviations = {
            kind: replace(
                before := coverage.deviations.get(kind, Deviation()),
                count=sum(each.count for each in rows),
                count_variance=before.count_variance + added**2 / factor,
                delay_ns=sum(each.delay_ns for each in rows),
                delay_variance=sum(each.delay_variance for each in rows),
            )
            for kind, (rows, added) in found.items()
            if rows
        }
        if pairs:  # they make up the block profile
            deviations["wakers"] = deviations["block"]
        looks = self.looks.totals().looks
        return [*block, *mutex, *pairs], replace(
            coverage, deviations=deviations, uncharged_ns=unknown_ns, looks=looks
        )

    def _waited(self) -> dict[_Key, _Waited]:
        """What looks found, by semaphore, return addresses from the park on, and labels."""
        found = {key: replace(each) for key, each in self._past.items()}
        base = self._base
        if base is None:
            return found
        sampler = self.looks.sampler
        for state, total in self.looks.totals().states.items():
            if state.word in _NOT_WAITING:
                continue
            at = sampler.park_at(state.pcs)
            if at is None:
                continue
            key = state.sema, state.pcs[at:][:MAX_DEPTH], state.labels or ()
            _add(found.setdefault(key, _Waited()), total, base.states.get(state))
        return found


def _split_by_lock(
    totals: Sequence[StackTotal],
    exact: _Exact,
    waited: Mapping[_Key, _Waited],
    mean_ns: float,
) -> tuple[list[StackTotal], float]:
    """The block profile by lock: for each stack, the estimate for all its locks, split.

    Also how many waits windows missed.

    Of many locks with few waits each, looks hit some and windows others: estimates of single locks
    don't add up to that of the stack.
    """
    found, missed = _block(totals, exact, _told_apart(totals, waited), mean_ns)
    if not any(each.sema for each in found):
        return found, missed
    whole_waited: dict[_Key, _Waited] = {}
    for (_, pcs, labels), waits in waited.items():
        _sum_up(whole_waited.setdefault((0, pcs, labels), _Waited()), waits)
    whole_exact: _Exact = {}
    for (kind, _, pcs, labels), (count, delay_ns) in exact.items():
        before = whole_exact.get((kind, 0, pcs, labels), (0.0, 0.0))
        whole_exact[kind, 0, pcs, labels] = before[0] + count, before[1] + delay_ns
    wholes, missed = _block(_of_all_locks(totals), whole_exact, whole_waited, mean_ns)
    by_stack = {_key_of(each): each for each in wholes}
    parts = {_key_of(each): each for each in _of_all_locks(found)}
    split = []
    for each in found:
        key = _key_of(replace(each, sema=0))
        whole, part = by_stack[key], parts[key]
        count = each.count * (whole.count / part.count if part.count else 1.0)
        ratio = whole.delay_ns / part.delay_ns if part.delay_ns else 1.0
        delay_ns, variance = round(ratio * each.delay_ns), ratio**2 * each.delay_variance
        split.append(replace(each, count=count, delay_ns=delay_ns, delay_variance=variance))
    return split, missed


def _of_all_locks(totals: Sequence[StackTotal]) -> list[StackTotal]:
    """The sums of each stack of the block profile, whatever the lock."""
    found: dict[_Key, StackTotal] = {}
    for each in totals:
        if each.kind != "block":
            continue
        whole = replace(each, sema=0)
        if before := found.get(_key_of(whole)):
            whole.count += before.count
            whole.delay_ns += before.delay_ns
            whole.delay_variance += before.delay_variance
        found[_key_of(whole)] = whole
    return list(found.values())


def _told_apart(
    totals: Sequence[StackTotal], waited: Mapping[_Key, _Waited]
) -> Mapping[_Key, _Waited]:
    """What looks found, with the locks that the kernel does not tell apart as OTHER_LOCKS."""
    known = {_key_of(each) for each in totals if each.kind == "block"}
    found: dict[_Key, _Waited] = {}
    for key, each in waited.items():
        others = (OTHER_LOCKS, *key[1:])
        at = others if key not in known and others in known else key
        _sum_up(found.setdefault(at, _Waited()), each)
    return found


def _sum_up(waited: _Waited, more: _Waited) -> None:
    waited.ns += more.ns
    waited.hits += more.hits
    waited.ended += more.ended
    waited.variance += more.variance


def _block(
    totals: Sequence[StackTotal],
    exact: _Exact,
    waited: Mapping[_Key, _Waited],
    mean_ns: float,
) -> tuple[list[StackTotal], float]:
    """The totals, and how many waits windows missed."""
    found, missed = [], 0.0
    left = dict(waited)
    for total in totals:
        if total.kind != "block":
            continue
        exact_count, exact_ns = exact.get(("block", *_key_of(total)), (0.0, 0.0))
        each, count = left.pop(_key_of(total), None), total.count
        if each and each.hits:
            delay_ns, variance = exact_ns + each.ns, each.variance
            if each.ns > _LONG * mean_ns * each.ended:  # looks have seen each of them
                count = exact_count + each.ended
            elif _have_missed(total.delay_ns - exact_ns, each.ns, each.hits):
                count = exact_count + each.ns * total.count / max(1, total.delay_ns)
                missed += max(0.0, count - total.count)
            count = max(count, each.ended)
        else:  # no look found one, so all together are hardly longer than what lies between two
            more_ns = min(max(0.0, total.delay_ns - exact_ns), mean_ns)
            delay_ns, variance = exact_ns + more_ns, more_ns**2
        delay_ns = round(delay_ns)
        found.append(replace(total, count=count, delay_ns=delay_ns, delay_variance=variance))
    for (sema, pcs, labels), each in left.items():
        if each.ended:  # windows missed them; a look may have, too, so there are at least these
            sums = each.ended, round(each.ns)
            found.append(StackTotal("block", sema, pcs, *sums, labels, each.variance))
    return found, missed


def _have_missed(seen_ns: float, looked_ns: float, hits: int) -> bool:
    """Whether windows missed most of what waited `looked_ns`, by that many hits of looks."""
    return hits >= _ENOUGH_HITS and looked_ns > _MISSED * seen_ns


def _waited_for_locks(
    block: Sequence[StackTotal], exact: _Exact, is_lock: StackTeller
) -> dict[int, _Waited]:
    """For each lock, what the block profile says of it beyond the times without a pause."""
    found = defaultdict[int, _Waited](_Waited)
    for each in block:
        if is_lock(each.return_pcs):
            _, before_ns = exact.get(("block", *_key_of(each)), (0.0, 0.0))
            ns = max(0.0, each.delay_ns - before_ns)
            _sum_up(found[each.sema], _Waited(ns, variance=each.delay_variance))
    return dict(found)


def _mutex(
    totals: Sequence[StackTotal],
    exact: _Exact,
    locks: Mapping[int, _Waited],
    uncharged: Mapping[int, float],
    coverage: WindowCoverage,
    mean_ns: float,
) -> list[StackTotal]:
    """The releases of each lock, which make up what goroutines waited for it.

    What no recorded release accounts for has no return addresses: by windows that ended before the
    release came, and by looks that found more waiting than windows did.
    """
    by_lock: dict[int, list[StackTotal]] = {sema: [] for sema in locks}
    for each in totals:
        by_lock.setdefault(each.sema, []).append(each)
    others_ns = sum(ns for sema, ns in uncharged.items() if sema not in by_lock)
    found = []
    for sema, releases in by_lock.items():
        left_ns = uncharged.get(sema, 0.0) if sema > OTHER_LOCKS else others_ns
        found += _releases(sema, releases, exact, locks.get(sema), left_ns, coverage, mean_ns)
    return found


def _releases(
    sema: int,
    totals: Sequence[StackTotal],
    exact: _Exact,
    waited: _Waited | None,
    left_ns: float,
    coverage: WindowCoverage,
    mean_ns: float,
) -> list[StackTotal]:
    """The releases of one lock; `left_ns` is the waiting until the ends of windows.

    If no look found that a goroutine waited for it (`waited`), all waits together are hardly longer
    than the time between two looks.
    """
    before = [exact.get(("mutex", *_key_of(each)), (0.0, 0.0)) for each in totals]
    more = [max(0.0, each.delay_ns - ns) for each, (_, ns) in zip(totals, before, strict=True)]
    seen_ns = sum(more)
    waited = waited or _Waited(min(seen_ns, mean_ns), variance=mean_ns**2)
    waited_ns = waited.ns
    is_known = coverage.windows >= LEAST_WINDOWS
    known_part = seen_ns / (seen_ns + left_ns) if is_known and seen_ns > 0 else 0.0
    known_ns = min(seen_ns, known_part * waited_ns)
    ratio = known_ns / seen_ns if seen_ns > 0 else 0.0
    relative = waited.variance / waited_ns**2 if waited_ns > 0 else 0.0
    factor = coverage.factor if coverage.windows > 1 else 1.0
    found = []
    for total, (before_count, before_ns), more_ns in zip(totals, before, more, strict=True):
        own = factor * total.delay_variance / more_ns**2 if more_ns > 0 else 0.0
        delay_ns = round(before_ns + ratio * more_ns)
        of_total = (ratio * more_ns) ** 2 * (relative + own)
        count = total.count if is_known else before_count
        if count > 0 or delay_ns:
            found.append(replace(total, count=count, delay_ns=delay_ns, delay_variance=of_total))
    if (unknown_ns := round(waited_ns - known_ns)) > 0:
        of_unknown = unknown_ns**2 * relative
        found.append(StackTotal("mutex", sema, (), 0.0, unknown_ns, (), of_unknown))
    return found


def _add(waited: _Waited, total: StateTotal, before: StateTotal | None) -> None:
    waited.ns += total.ended_ns - (before.ended_ns if before else 0)
    waited.hits += total.hits - (before.hits if before else 0)
    waited.ended += total.ended - (before.ended if before else 0)
    waited.variance += total.variance - (before.variance if before else 0.0)


def _key_of(stack: KnownStack | StackTotal) -> _Key:
    return stack.sema, stack.return_pcs, stack.labels


def tellers(go: GoTarget, translator: StackTranslator) -> tuple[StackTeller, StackTeller]:
    """What LookedDelays.applied() must know of the stacks of a target."""

    def is_lock(return_pcs: tuple[int, ...]) -> bool:
        with suppress(SymbolizerError):
            return lock_use(translator, return_pcs) is not None
        return False

    def is_runtime_lock(return_pcs: tuple[int, ...]) -> bool:
        with suppress(SymbolizerError):
            has_leaf = go.runtime_locks and bool(return_pcs)
            leaf = translator.frames(return_pcs)[0].function if has_leaf else ""
            return leaf.startswith("runtime.unlock")
        return False

    return is_lock, is_runtime_lock
