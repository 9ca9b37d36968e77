"""Loads the program that records one wait in eight, and attaches its probes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ebpfprof.goruntime.limits import MAX_DEPTH, MAX_LOCK_CALLERS
from ebpfprof.kernel import c_facts
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.kernel.losses import Loss, losses
from ebpfprof.kernel.program import BpfProgram
from ebpfprof.kernel.uprobe_helper import Uprobe
from ebpfprof.profilers.bounded_probes import BoundedProbes
from ebpfprof.profilers.target_layout import target_fields
from ebpfprof.profilers.waits.rows import StackTotal
from symbolizer.codeanalysis.tracked_waits import (
    TRACKING_PERIOD,
    TrackedWaitSites,
    tracked_wait_sites,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ebpfprof.goruntime.process import GoTarget
    from symbolizer import RuntimeLayout
    from symbolizer.x86.values import Source

SITES_PER_TARGET: Final = 32
_ORIGINS: Final = c_facts.enum("probes/source.h", "origin")
_MAX_WAITS: Final = 1 << 18
_MAX_STACKS: Final = 1 << 15
_COUNT_SHIFT: Final = 0
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
    `runs` of the goroutines that were woken were `runnable_ns` in a run queue.
    """

    return_pcs: tuple[int, ...]
    parks: int
    delay_ns: int
    again: int = 0
    again_ns: int = 0
    runs: int = 0
    runnable_ns: int = 0


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
                "MAX_SITES": targets * SITES_PER_TARGET,
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

    def attach(self, index: int, go: GoTarget, *, with_runs: bool = True) -> None:
        """Attach the probes to a target, give it the number `index`, and start to record it.

        Without `with_runs`, the time in run queues and parks that follow another one are not known.
        Raises AttachFailed and the like.
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
            cookie = index * SITES_PER_TARGET + number
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
        queued = _rows(self._program, "queues")
        return [
            TrackedSum(
                stacks[key],
                int(total["count"]),
                int(total["delay_ns"]),
                *(
                    int(queued[key][name]) if key in queued else 0
                    for name in ("again", "again_ns", "count", "runnable_ns")
                ),
            )
            for key, total in _rows(self._program, "totals").items()
            if key in stacks
        ]

    def losses(self) -> Sequence[Loss]:
        """What was lost so far of each target."""
        return losses(self._program.maps["losses"].numbers())

    def close(self) -> None:
        """Detach the probes and free the maps."""
        self._program.close()

    def _describe(self, index: int, *, is_active: bool) -> None:
        fields = self._targets[index][2]
        self._program.maps["targets"].set_struct(index, {**fields, "active": int(is_active)})


def stack_totals(
    sums: Sequence[TrackedSum], go: GoTarget, *, weight: int = TRACKING_PERIOD
) -> list[StackTotal]:
    """The sums as those of a recording of every wait, of the operations of Go's block profile.

    A park that was followed by another one in the same operation is no event by itself.
    """
    parks = {park.return_pc + go.load_bias for park in go.sites.parks}
    totals = []
    for each in sums:
        # In profile-guided builds the goroutine may continue in the operation itself, or in
        # goparkunlock.
        outer = next((n for n, pc in enumerate(each.return_pcs[:3]) if pc in parks), None)
        if outer is not None and each.parks > each.again:
            count = weight * (each.parks - each.again)
            delay_ns = weight * (each.delay_ns + each.again_ns)
            totals.append(StackTotal("block", 0, each.return_pcs[outer:], count, delay_ns))
    return totals


def _rows(program: BpfProgram, name: str) -> Mapping[int, Any]:
    keys, rows = program.maps[name].rows()
    return dict(zip(keys.tolist(), rows, strict=True))


def source_fields(source: Source) -> dict[str, int]:
    """The fields of struct source (bpf/probes/source.h)."""
    name = source.register if source.register[1:].isdigit() else source.register[1:]
    origin = _ORIGINS[name.upper() or "NONE"]
    return {"of": origin, "reads": int(source.reads), "offset": source.offset}


def tracking_fields(go: GoTarget, sites: TrackedWaitSites) -> dict[str, int]:
    """The fields of struct tracking."""
    layout = go.binary.layout
    return {
        "reasons": _bits(layout, _REASONS),
        "stamped": _bits(layout, _STAMPED) if sites.stamps_locks else 0,
        "began_ns": kernel_now_ns(),
        "semaphore_pc": sum(
            park.return_pc + go.load_bias for park in go.sites.parks if park.is_semaphore
        ),
        "checks_status": int(not sites.stamps_locks),
        "stamp_offset": layout.offset("g", "trackingStamp"),
        "runnable_offset": layout.offset("g", "runnableTime"),
        "sudog_offset": sites.sudog_offset or 0,
        "ticket_offset": layout.offset("sudog", "ticket"),
    }


def _bits(layout: RuntimeLayout, names: tuple[str, ...]) -> int:
    known = layout.wait_reasons
    return sum(1 << known[name] for name in names if name in known)
