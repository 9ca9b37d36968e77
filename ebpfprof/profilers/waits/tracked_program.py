"""Loads the program that records one wait in eight, and attaches its probes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ebpfprof.goruntime.limits import MAX_DEPTH, MAX_LOCK_CALLERS
from ebpfprof.kernel import c_facts
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.kernel.program import BpfProgram
from ebpfprof.kernel.uprobe_helper import Uprobe
from ebpfprof.profile.losses import Loss
from ebpfprof.profilers.bounded_probes import BoundedProbes
from ebpfprof.profilers.kernel_losses import losses
from ebpfprof.profilers.target_layout import source_fields, target_fields
from ebpfprof.profilers.waits.rows import StackTotal
from symbolizer.codeanalysis.tracked_waits import (
    MAX_PLACES,
    TRACKING_PERIOD,
    TrackedWaitSites,
    tracked_wait_sites,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ebpfprof.goruntime.process import GoTarget
    from symbolizer import RuntimeLayout

_TARGET_SHIFT: Final = c_facts.number("common/keys.h", "TARGET_SHIFT")
_MAX_WAITS: Final = 1 << 18
_MAX_STACKS: Final = 1 << 15
_COUNT_SHIFT: Final = 0
_DELAY_SHIFT: Final = c_facts.number("waits/tracked.bpf.c", "DELAY_SHIFT")
_LONG_SHIFT: Final = c_facts.number("waits/tracked.bpf.c", "LONG_SHIFT")
# Of what a trap costs, this part lies between the clock readings of a wait: the end of the trap at
# the begin, and the beginning of that at the end. Measured with two probes one behind the other.
_PART_WITHIN: Final = 0.5
# The runtime.waitReason of waits that are events of Go's block profile (runtime/mprof.go).
_REASONS: Final = (
    *("ChanReceive", "ChanSend", "Select", "SyncCondWait", "Semacquire", "SyncMutexLock"),
    *("SyncRWMutexRLock", "SyncRWMutexLock", "SyncWaitGroupWait"),
    *("SynctestChanReceive", "SynctestChanSend", "SynctestSelect", "SynctestWaitGroupWait"),
)
# Those of waitReason.isMutexWait (runtime/runtime2.go).
_STAMPED: Final = ("SyncMutexLock", "SyncRWMutexRLock", "SyncRWMutexLock")


class TrackedSum(NamedTuple):
    """What tracked waits of one stack add up to; each stands for eight waits.

    `return_pcs` begin with where the goroutine continues, in gopark as a rule. `again` of the
    `parks` were followed by another one in the same operation; `again_ns` went by between.
    `runs` of the goroutines that were woken were `runnable_ns` in a run queue. The begin of
    `probed` waits was noted by a probe, that of the others by the runtime itself. `squares` is the
    sum of the squares of all delays (ns²).
    """

    return_pcs: tuple[int, ...]
    parks: int
    delay_ns: int
    again: int = 0
    again_ns: int = 0
    runs: int = 0
    runnable_ns: int = 0
    probed: int = 0
    squares: float = 0.0


class TrackedProgram(BoundedProbes):
    """The BPF program, loaded once, with the probes of any number of targets."""

    def __init__(self, targets: int) -> None:
        """Start to compile for up to `targets` targets. Raises what BpfProgram raises."""
        self._targets: dict[int, tuple[GoTarget, TrackedWaitSites, dict[str, Any]]] = {}
        self._program = BpfProgram(
            "waits/tracked.bpf.c",
            {
                **dict.fromkeys(("WITH_LABELS", "BY_LOCK", "WITH_RUNTIME_LOCKS"), 0),
                **dict.fromkeys(("CROSSES_STACKS", "WITH_WINDOWS"), 0),
                "COUNT_SHIFT": _COUNT_SHIFT,
                "MAX_TARGETS": targets,
                "MAX_SITES": targets * MAX_PLACES,
                "MAX_STACKS": 1,
                "MAX_WAITS": 1,
                "MAX_DEPTH": MAX_DEPTH,
                "LOCK_CALLERS": MAX_LOCK_CALLERS,
            },
            functions=("on_tracked_begin", "on_tracked_end", "on_tracked_run"),
        )

    def load(self) -> None:
        """Make the maps and load the program. Raises as BpfProgram."""
        rows = {"stacks": _MAX_STACKS, "totals": _MAX_STACKS, "queues": _MAX_STACKS}
        rows["tracked"] = _MAX_WAITS
        self._program.load(rows, grows=frozenset(rows))

    def attach(self, index: int, go: GoTarget, *, with_runs: bool = True) -> int:
        """Attach the probes to a target, give it the number `index`, and start to record it.

        Without `with_runs`, the time in run queues and parks that follow another one are not known.
        Returns the start time (CLOCK_MONOTONIC, ns). Raises AttachFailed and the like.
        """
        sites = tracked_wait_sites(go.binary)
        fields = target_fields(go, has_labels=False)
        self._targets[index] = go, sites, fields
        self._describe(index, is_active=False)
        self._program.maps["trackings"].set_struct(index, tracking_fields(go, sites))
        places = [("on_tracked_begin", site) for site in sites.begins]
        places += [("on_tracked_end", site) for site in sites.ends]
        if with_runs:
            places += [("on_tracked_run", site) for site in sites.runs]
        probes = []
        for number, (function, site) in enumerate(places):
            cookie = index * MAX_PLACES + number
            self._program.maps["sites"].set_struct(cookie, {"return_pc": site.pc, "target": index})
            self._program.maps["goroutines"].set_struct(cookie, source_fields(site.goroutine))
            probes.append(
                Uprobe(function, go.file_offset(site.pc), site.pc + go.load_bias, cookie=cookie)
            )
        anchor = (go.file_offset(go.sites.anchor_pc), go.sites.anchor_pc + go.load_bias)
        self._program.attach_uprobes(
            go.target.exe_fd, go.target.pid, probes, anchor=anchor, group=index
        )
        self._describe(index, is_active=True)
        return kernel_now_ns()

    def detach_target(self, index: int) -> None:
        """End the recording of a target and detach its probes; the sums stay readable."""
        if index in self._targets:
            self._describe(index, is_active=False)
            self._program.detach_uprobes([index])

    def sums(self, index: int) -> list[TrackedSum]:
        """The sums of a target by stack."""
        stacks: dict[int, tuple[int, ...]] = {}
        for keys, rows in self._program.maps["stacks"].batches():
            for key, row in zip(keys.tolist(), rows, strict=True):
                if row["group"]["target"] == index:
                    stacks[key] = tuple(row["pcs"][: row["depth"]].tolist())
        queues = _rows(self._program, "queues")
        found = []
        for key, total in _rows(self._program, "totals").items():
            if key in stacks and (queued := queues.get(key)) is not None:
                found.append(
                    TrackedSum(
                        stacks[key],
                        parks=int(total["count"]),
                        delay_ns=int(total["delay_ns"]),
                        again=int(queued["again"]),
                        again_ns=int(queued["again_ns"]),
                        runs=int(queued["count"]),
                        runnable_ns=int(queued["runnable_ns"]),
                        probed=int(queued["probed"]),
                        squares=float(queued["squares"]) * (1 << 2 * _DELAY_SHIFT)
                        + float(queued["long_squares"]) * (1 << 2 * _LONG_SHIFT),
                    )
                )
        return found

    def end(self, index: int) -> None:
        """Record no more events of a target."""
        if index in self._targets:
            self._describe(index, is_active=False)

    def forget(self, index: int) -> None:
        """Delete all data of a target without attached probes."""
        if self._targets.pop(index, None) is None:
            return
        for keys, rows in self._program.maps["stacks"].batches():
            ours = keys[rows["group"]["target"] == index]
            for table in ("totals", "queues", "stacks"):
                self._program.maps[table].delete(ours)
        keys, _ = self._program.maps["tracked"].rows()
        self._program.maps["tracked"].delete(keys[keys >> _TARGET_SHIFT == index])

    def losses(self) -> Sequence[Loss]:
        """What was lost so far of each target."""
        if not self._program.is_loaded:
            return ()
        return losses(self._program.maps["losses"].numbers())

    def detach(self) -> None:
        """Detach all probes; the sums stay readable."""
        self._program.detach()

    def close(self) -> None:
        """Detach the probes and free the maps."""
        self._program.close()

    def _describe(self, index: int, *, is_active: bool) -> None:
        fields = self._targets[index][2]
        self._program.maps["targets"].set_struct(index, {**fields, "active": int(is_active)})


def stack_totals(
    sums: Sequence[TrackedSum],
    go: GoTarget,
    *,
    weight: int = TRACKING_PERIOD,
    hit_ns: float = 0.0,
) -> list[StackTotal]:
    """The sums as those of a recording of every wait, of the operations of Go's block profile.

    A park that was followed by another one in the same operation is no event by itself. A probe
    hit costs `hit_ns`, which is taken off the delays as far as it is in them.
    """
    parks = {park.return_pc + go.load_bias for park in go.sites.parks}
    totals = []
    for each in sums:
        # In profile-guided builds the goroutine may continue in the operation itself, or in
        # goparkunlock.
        outer = next((n for n, pc in enumerate(each.return_pcs[:3]) if pc in parks), None)
        if outer is not None and each.parks > each.again:
            count = weight * (each.parks - each.again)
            within_ns = min(_PART_WITHIN * hit_ns * each.probed, each.delay_ns / 2)
            delay_ns = weight * (each.delay_ns - round(within_ns) + each.again_ns)
            total = StackTotal("block", 0, each.return_pcs[outer:], count, delay_ns)
            total.delay_variance = weight * (weight - 1) * each.squares
            totals.append(total)
    return totals


def _rows(program: BpfProgram, name: str) -> Mapping[int, Any]:
    keys, rows = program.maps[name].rows()
    return dict(zip(keys.tolist(), rows, strict=True))


def tracking_fields(go: GoTarget, sites: TrackedWaitSites) -> dict[str, int]:
    """The fields of struct tracking."""
    layout = go.binary.layout
    semaphore_pcs = [p.return_pc + go.load_bias for p in go.sites.parks if p.is_semaphore]
    return {
        "reasons": _bits(layout, _REASONS),
        "stamped": _bits(layout, _STAMPED) if sites.stamps_locks else 0,
        "began_ns": kernel_now_ns(),
        "semaphore_pc": semaphore_pcs[0] if len(semaphore_pcs) == 1 else 0,
        "checks_status": int(not sites.stamps_locks),
        "stamp_offset": layout.offset("g", "trackingStamp"),
        "runnable_offset": layout.offset("g", "runnableTime"),
        "sudog_offset": sites.sudog_offset or 0,
        "ticket_offset": layout.offset("sudog", "ticket"),
    }


def _bits(layout: RuntimeLayout, names: tuple[str, ...]) -> int:
    known = layout.wait_reasons
    return sum(1 << known[name] for name in names if name in known)
