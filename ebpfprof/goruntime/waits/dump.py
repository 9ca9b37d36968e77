"""A dump of a target's goroutines, from some samples of them."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.goroutines.all_goroutines import GoroutineScanner
from ebpfprof.goruntime.goroutines.fields import GOID_SHIFT
from ebpfprof.goruntime.goroutines.frames import StackFrames
from ebpfprof.goruntime.goroutines.table import MAX_GOROUTINES
from ebpfprof.goruntime.waits.channel_users import channel_users
from ebpfprof.goruntime.waits.http_requests import RequestReader
from ebpfprof.goruntime.waits.standing import DUMPED, DUMPED_SLOWLY, StandingJudge, Threshold
from ebpfprof.goruntime.waits.stuck_check import StuckCheck
from ebpfprof.goruntime.waits.waits_for import WaitReader
from ebpfprof.profile.asleep import IO_WAIT
from ebpfprof.profile.deadlocks import circles
from ebpfprof.profile.goroutines import (
    DumpedGoroutine,
    GoroutineDump,
    GrowingSite,
    HttpRequest,
)
from ebpfprof.profile.waiting_for import NOTHING, Sureness, WaitsFor

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ebpfprof.goruntime.goroutines.all_goroutines import AllGoroutines, Goroutine
    from ebpfprof.goruntime.goroutines.table import Heads
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.goruntime.waits.pools import PoolReader
    from ebpfprof.goruntime.waits.waits_for import Moving

_MOST_SAMPLES: Final = 4  # of which goroutine holds which lock
_LONG_SAMPLE_NS: Final = 2_000_000_000
_GROWS_S: Final = 1.0  # in less time no number of goroutines is called growing
_LEAST_GROWN: Final = 10
_LEAST_SHARE: Final = 0.1
_SLOW_S: Final = 0.02  # if a sample takes that long, there are fewer


class GoroutineDumper:
    """Dumps the goroutines of one target, any number of times. Closes the target's memory."""

    def __init__(self, go: GoTarget, *, most: int = MAX_GOROUTINES) -> None:
        """Open the target's memory; for `most` see GoroutineScanner.

        Raises TargetGone, PermissionDenied or GoTableError.
        """
        self._go = go
        self._scanner = GoroutineScanner(go, most=most)
        self._frames = StackFrames(go)
        self._waits: WaitReader | None = None
        self._last: AllGoroutines | None = None
        self._stuck: StuckCheck | None = None
        self._requests = RequestReader(go, self._scanner)

    def dump(self, *, apart_s: float, samples: int = DUMPED.samples) -> GoroutineDump:
        """Sample all goroutines at the beginning and the end of `apart_s` seconds, and between.

        The last sample is shown. A goroutine has not moved if all saw it in the same wait: see
        standing. Of system calls nothing shows whether one is the same.

        The last sample is taken again, a few times at most, while it leaves open which goroutine
        holds a lock: goroutines continued before their stacks were read. Raises TargetGone,
        UnreadableMemory or GoTableError.
        """
        if self._waits is None:  # it takes time: now, not after the last sample
            self._waits = WaitReader(self._go, self._scanner.memory, self._frames)
        began_s = time.monotonic()
        judge = self.judge()
        heads = self.sample(judge)
        if time.monotonic() - began_s > _SLOW_S:
            samples = min(samples, DUMPED_SLOWLY.samples)
        first_ns = judge.ended_ns
        born = [_born(heads)] if apart_s >= _GROWS_S else []
        slept_s = 0.0
        for due_s in sorted(random.uniform(0, apart_s) for _ in range(samples - 2)):
            time.sleep(due_s - slept_s)  # goroutines that are not stuck need time to move
            slept_s = due_s
            heads = self.sample(judge)
            if len(born) == 1 and due_s >= apart_s / 2:
                born.append(_born(heads))
        time.sleep(apart_s - slept_s)  # again, for goroutines to move before the last sample
        since_ns = judge.standing(Threshold(samples - 1)).by_wait()
        for further in reversed(range(_MOST_SAMPLES)):
            # Not the time after the sample: goroutines may have gone on before it ended.
            begun_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            last = self._scanner.scan()
            requests = self._requests.read(last.goroutines)  # at once: they go on
            moving = self._waits.read_moving(last)
            self._look_up(last)
            waits = self._waits.read(last, moving)
            stood_ns = {
                goroutine.goid: begun_ns - since_ns[goroutine.wait]
                for goroutine in last.goroutines
                if goroutine.is_parked and goroutine.pcs and goroutine.wait in since_ns
            }
            made = self._made(last, waits, stood_ns, begun_ns - first_ns, samples)
            made = self._confirmed(made, last, moving) if apart_s else made
            took_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC) - begun_ns
            if not further or took_ns > _LONG_SAMPLE_NS or _is_decided(made):
                break
        made = replace(made, growing=self._growing(made, last, born))
        return _with_requests(made, requests)

    def dump_once(
        self,
        since_ns: Mapping[int, int] | None = None,
        *,
        seen_ns: Mapping[int, int] | None = None,
        has_waits: bool = False,
        has_requests: bool = False,
    ) -> GoroutineDump:
        """Take one sample, of stacks only.

        With `has_waits` also of what goroutines wait for, with `has_requests` of which requests
        they handle.

        `since_ns` says since when goroutines stand still, by the numbers of their waits, `seen_ns`
        since when they were seen in this wait, which is less sure. Raises what dump() raises.
        """
        if has_waits and self._waits is None:
            self._waits = WaitReader(self._go, self._scanner.memory, self._frames)
        scan = self._last = self._scanner.scan()
        requests = self._requests.read(scan.goroutines) if has_requests else {}
        moving = self._waits.read_moving(scan) if has_waits and self._waits else None
        self._look_up(scan)
        waits = self._waits.read(scan, moving) if moving and self._waits else {}
        stood_ns, waited_ns = _stood(scan, since_ns or {}), _stood(scan, seen_ns or {})
        made = self._made(scan, waits, stood_ns, 0, 1, waited_ns)
        made = self._confirmed(made, scan, moving) if moving else made
        return _with_requests(made, requests)

    def prepare(self) -> None:
        """Find now what samples need: for a large program it takes some tenths of a second.

        Raises TargetGone or GoTableError.
        """
        if self._waits is None:
            self._waits = WaitReader(self._go, self._scanner.memory, self._frames)
        self._requests.prepare()

    def find_pools(self, pools: PoolReader) -> None:
        """Find the pools of the goroutines of the last dump_once(). Raises what that raises."""
        if self._last is not None:
            pools.find(self._last.goroutines, self._frames)

    def channel_users(self, channels: Collection[int]) -> dict[int, tuple[int, ...]]:
        """The goroutines of the last dump_once() that can use channels: see channel_users.

        Raises what dump_once() raises.
        """
        goroutines = self._last.goroutines if self._last else ()
        return channel_users(self._scanner.memory, self._frames, goroutines, channels)

    def judge(self) -> StandingJudge:
        """A new judge of the target's goroutines, for sample()."""
        return StandingJudge(self._scanner.counted)

    def sample(self, *judges: StandingJudge) -> Heads:
        """Read the table of goroutines, and show it to judges.

        Raises TargetGone or UnreadableMemory.
        """
        began_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        heads = self._scanner.read_table()
        ended_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        for judge in judges:
            judge.add(heads.waits, began_ns, ended_ns)
        return heads

    def _confirmed(
        self, made: GoroutineDump, goroutines: AllGoroutines, moving: Moving
    ) -> GoroutineDump:
        if self._stuck is None:
            self._stuck = StuckCheck(self._go, self._scanner, self._frames)
        return self._stuck.confirm(made, goroutines, moving.locks)

    def _growing(
        self, made: GoroutineDump, last: AllGoroutines, born: Sequence[Mapping[int, int]]
    ) -> tuple[GrowingSite, ...]:
        """The lines that created more and more goroutines, the most first.

        As many goroutines serve connections as there are connections: those are left out.
        """
        if len(born) < 2:
            return ()
        shown = {goroutine.goid: goroutine for goroutine in made.goroutines}
        now = {
            goroutine.goid: goroutine.created_pc
            for goroutine in last.goroutines
            if goroutine.goid in shown
        }
        counts = [Counter(sites.values()) for sites in (*born, now)]
        for_network = {pc for goid, pc in now.items() if shown[goid].state == IO_WAIT}
        ended = Counter(pc for goid, pc in born[0].items() if goid not in now)
        examples = {pc: shown[goid] for goid, pc in now.items()}
        growing = []
        for pc, number in counts[-1].items():
            before, grown = counts[0][pc], number - counts[0][pc]
            created = examples[pc].created_by
            is_steady = before < counts[1][pc] < number and ended[pc] <= _LEAST_SHARE * grown
            is_much = grown >= max(_LEAST_GROWN, _LEAST_SHARE * before)
            if created and is_steady and is_much and pc not in for_network:
                growing.append(GrowingSite(created, before, number, ended[pc], examples[pc]))
        return tuple(sorted(growing, key=lambda site: site.before - site.now))

    def _look_up(self, goroutines: AllGoroutines) -> None:
        self._frames.look_up(
            pc
            for goroutine in goroutines.goroutines
            for pc in (*goroutine.pcs, goroutine.start_pc, goroutine.created_pc)
            if pc
        )

    def _made(
        self,
        goroutines: AllGoroutines,
        waits: Mapping[int, WaitsFor],
        stood_ns: Mapping[int, int],
        apart_ns: int,
        samples: int,
        waited_ns: Mapping[int, int] | None = None,
    ) -> GoroutineDump:
        known_ns = waited_ns or {}
        shown = [
            self._shown(
                goroutine,
                waits,
                stood_ns.get(goroutine.goid, 0),
                max(goroutine.waited_ns, known_ns.get(goroutine.goid, 0)),
            )
            for goroutine in goroutines.goroutines
            if not self._frames.is_system(goroutine.start_pc, goroutine.pcs, goroutine.state)
        ]
        return GoroutineDump(
            self._go.target.pid,
            self._go.target.name,
            self._go.binary.version.text,
            apart_ns,
            tuple(shown),
            len(goroutines.goroutines) - len(shown),
            goroutines.moved,
            goroutines.beyond,
            sum(goroutine.labels is None for goroutine in goroutines.goroutines),
            goroutines.read_ns,
            samples=samples,
        )

    def _shown(
        self, goroutine: Goroutine, waits: Mapping[int, WaitsFor], stood_ns: int, waited_ns: int
    ) -> DumpedGoroutine:
        return DumpedGoroutine(
            goroutine.goid,
            goroutine.state,
            self._frames.of(goroutine.pcs),
            goroutine.is_whole,
            stood_ns,
            max(stood_ns, waited_ns),
            goroutine.is_locked,
            self._frames.creator(goroutine.created_pc),
            goroutine.parent,
            goroutine.labels or (),
            goroutine.channels,
            waits.get(goroutine.goid, NOTHING),
            goroutine.is_leaked,
            goroutine.wait if goroutine.is_parked else None,
        )


def _with_requests(made: GoroutineDump, requests: Mapping[int, HttpRequest]) -> GoroutineDump:
    """The dump with the requests of goroutines, by their ids."""
    if not requests:
        return made
    goroutines = (replace(one, request=requests.get(one.goid)) for one in made.goroutines)
    return replace(made, goroutines=tuple(goroutines))


def _stood(goroutines: AllGoroutines, since_ns: Mapping[int, int]) -> dict[int, int]:
    """For how long goroutines have not moved until this sample (ns), by their ids."""
    return {
        goroutine.goid: max(0, goroutines.read_ns - since_ns[goroutine.wait])
        for goroutine in goroutines.goroutines
        if goroutine.is_parked and goroutine.wait in since_ns
    }


def _born(heads: Heads) -> dict[int, int]:
    """All goroutines: by id, the return address of the `go` statement that created each."""
    is_there = heads.is_there
    goids = heads.waits[is_there] >> np.uint64(GOID_SHIFT)
    return dict(zip(goids.tolist(), heads["created_pc"][is_there].tolist(), strict=True))


def _is_decided(made: GoroutineDump) -> bool:
    """Whether it is known who holds the locks for which others wait."""
    if any(circle.sureness is not Sureness.CERTAIN for circle in circles(made.goroutines)):
        return False
    return all(
        waits.may_hold or waits.behind or not (waits.lock.is_locked or waits.lock.readers)
        for goroutine in made.goroutines
        if (waits := goroutine.waits_for).lock
    )


def dump(go: GoTarget, *, apart_s: float) -> GoroutineDump:
    """Dump the goroutines once: see GoroutineDumper.dump. Raises PermissionDenied, too."""
    dumper = GoroutineDumper(go)
    return dumper.dump(apart_s=apart_s)
