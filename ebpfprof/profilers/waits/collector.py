"""Loads the program of waits, and attaches its probes: where goroutines park, wake and unlock.

Either those of every wait, or those of one wait in eight (bpf/waits/one_in_eight.h).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from ebpfprof.errors import AttachFailed
from ebpfprof.goruntime.limits import MAX_DEPTH, MAX_LOCK_CALLERS
from ebpfprof.kernel import c_facts
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.kernel.program import BpfProgram
from ebpfprof.kernel.program_source import ProgramSource
from ebpfprof.profile.losses import Loss
from ebpfprof.profilers import labels
from ebpfprof.profilers.alarms import BudgetAlarms
from ebpfprof.profilers.bounded_probes import BoundedProbes
from ebpfprof.profilers.kernel_losses import losses
from ebpfprof.profilers.label_pages import AbsentLabels
from ebpfprof.profilers.target_layout import target_fields
from ebpfprof.profilers.waits import runtime_locks
from ebpfprof.profilers.waits.probe_sites import SITES_PER_TARGET, SiteTable
from ebpfprof.profilers.waits.rows import WaitsConfig
from ebpfprof.profilers.waits.tracking import FOREVER_NS, tracking_fields
from ebpfprof.profilers.waits.wait_tables import COUNT_SHIFT, WaitTables
from symbolizer.codeanalysis.tracked_waits import TRACKING_PERIOD, tracked_wait_sites
from symbolizer.errors import SymbolizerError

if TYPE_CHECKING:  # the session imports them while BCC compiles
    from ebpfprof.goruntime.goroutines.parked import ParkedGoroutine
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.kernel.uprobe_helper import Uprobe
    from symbolizer.codeanalysis.tracked_waits import TrackedWaitSites

_WAITERS_BITS = c_facts.number("waits/locks.h", "WAITERS_BITS")
MAX_WAITS = (1 << _WAITERS_BITS) - 1  # rows of goroutines that wait: as many as a lock can count
_USUAL_WAITS = 1 << 18
_GROWTH = 4  # times as many goroutines as now may wait later
MAX_STACKS = 1 << 15
MANY_STACKS = 2  # times as many with by_lock, with wakers, and for more than _FEW_TARGETS
MAX_PAIRS = 1 << 16
MAX_LENGTHS = 1 << 17  # four rows for each stack, of pairs and run queues, too: most have fewer
_FEW_TARGETS = 8
MAX_LOCKS = 1 << 16
FEW_LOCKS = 1 << 10  # stacks of locks: naming one takes about 0.2 ms, at each reading a part of it
_LARGE_MAPS = (
    *("MAX_WAITS", "MAX_STACKS", "MAX_LOCKS", "MAX_LABEL_SETS", "MAX_SLEEPERS", "MAX_PAIRS"),
    *("MAX_LENGTHS", "MAX_CHOSEN_LABELS"),
)
_KINDS_OF_LOSSES = {
    "pairs_full": ("wakers",),
    "waker_unreadable": ("wakers",),
}  # others: all

_ENOUGH_RUNS: Final = 100  # for a share of waits with a standard error of 5 % at most
_YOUNG_NS: Final = 1_000_000_000


@dataclass(slots=True)
class AttachedTarget:
    """A target to which probes were attached; `fields` are those of struct target."""

    go: GoTarget
    fields: dict[str, Any]
    places: tuple[TrackedWaitSites, ...] = ()
    """The places of one wait in eight in each file of go.probed, once they were searched."""
    begun_ns: int | None = None
    """When the present recording began, CLOCK_MONOTONIC; None without one."""
    every_until_ns: int = FOREVER_NS
    """Until when every wait is recorded, CLOCK_MONOTONIC; then one in eight is."""
    needed_before: dict[str, int] = field(default_factory=dict)
    """What needed_runs had of this target before the present recording."""


def source(config: WaitsConfig) -> ProgramSource:
    """The program for these options."""
    return ProgramSource(
        "waits/waits.bpf.c",
        {
            "WITH_BLOCK": int(config.block),
            "WITH_MUTEX": int(config.mutex),
            "BY_LOCK": int(config.by_lock),
            "EVERY_EVENT": int(config.block_rate_ns == 1),
            "WITH_LABELS": int(config.labels),
            "WITH_WAKERS": int(config.wakers),
            "WITH_RUNTIME_LOCKS": int(config.runtime_locks),
            # Not put in at load: before Linux 6.9 some programs would be too complex to verify.
            "WITH_EARLIER": int(config.earlier_waits),
            "WITH_ONE_IN_EIGHT": int(config.tracks_waits),
            "WITH_ALARM": int(config.tracks_waits),
            # BCC makes the maps, too, but we don't use its maps: load() makes large ones.
            **dict.fromkeys(_LARGE_MAPS, 1),
            "MAX_DEPTH": MAX_DEPTH,
            "LOCK_CALLERS": MAX_LOCK_CALLERS,
            "COUNT_SHIFT": COUNT_SHIFT,
        },
        functions=(
            *("on_wait", "on_settled", _wake_function(config)),
            *(runtime_locks.FUNCTIONS if config.runtime_locks else ()),
            *(_tracked_functions(config) if config.tracks_waits else ()),
        ),
        own_functions=("seed",),
        numbers=(
            *labels.NUMBERS,
            "WITH_RUN_QUEUE",
            "BLOCK_RATE_NS",
            "MUTEX_FRACTION",
        ),
    )


def sources() -> Iterator[ProgramSource]:
    """The program with all combinations of options."""
    switches = (True, False)
    for block, mutex, by_lock, wakers, has_runtime_locks, *others in product(switches, repeat=9):
        has_labels, is_earlier, tracks, every = others
        is_made = block or (mutex and not wakers)
        if is_made and (mutex or not (by_lock or has_runtime_locks)):
            yield source(
                WaitsConfig(
                    block=block,
                    mutex=mutex,
                    by_lock=by_lock,
                    wakers=wakers,
                    runtime_locks=has_runtime_locks,
                    labels=has_labels,
                    earlier_waits=is_earlier,
                    one_in_eight=tracks,
                    block_rate_ns=1 if every else 2,
                )
            )


class WaitsCollector(BoundedProbes):
    """The BPF program, loaded once, with the probes of any number of targets."""

    def __init__(self, targets: int, config: WaitsConfig) -> None:
        """Start to compile for up to `targets` targets; load() waits for the result.

        Raises what BpfProgram raises.
        """
        self._config = config
        self._targets = targets
        self._attached: dict[int, AttachedTarget] = {}
        self._program = BpfProgram(
            source(config),
            {
                **labels.numbers(config.label_keys),
                "WITH_RUN_QUEUE": int(config.run_queue),
                "BLOCK_RATE_NS": config.block_rate_ns,
                "MUTEX_FRACTION": config.mutex_fraction,
            },
            {"MAX_TARGETS": targets, "MAX_SITES": targets * SITES_PER_TARGET},
        )
        self.tables = WaitTables(self._program, config)
        self._sites = SiteTable(self._program, config)
        self._absent_labels = AbsentLabels(self._program)

    def load(self, goroutines: int = 0) -> None:
        """Make the maps and load the program, without probes.

        `goroutines` is the number of goroutines of all targets, 0 if unknown. Raises what
        BpfProgram raises.
        """
        stacks = MAX_STACKS * (MANY_STACKS if self._config.by_lock else 1)
        stacks *= MANY_STACKS if self._config.wakers else 1
        stacks *= MANY_STACKS if self._targets > _FEW_TARGETS else 1
        rows = {
            "waits": min(max(_USUAL_WAITS, _GROWTH * goroutines), MAX_WAITS),
            "stacks": stacks,
            "totals": stacks,
            "locks": MAX_LOCKS,
            **labels.rows(self._config.label_keys),
            "sleepers": runtime_locks.MAX_SLEEPERS,
            "pairs": MAX_PAIRS,
            "counted_wakers": MAX_WAITS,
            "tracked": min(max(_USUAL_WAITS, _GROWTH * goroutines), MAX_WAITS),
            "spreads": stacks,
            "lengths": MAX_LENGTHS * stacks // MAX_STACKS,
        }
        self._program.load(rows, grows=frozenset(rows))
        labels.choose(self._program, self._config.label_keys)
        self.tables.stacks.keep_labelled(stacks // 2)
        most_locked = FEW_LOCKS if self._config.few_locks else MAX_STACKS
        self.tables.stacks.keep_locked(min(stacks // 2, most_locked))
        if self._config.tracks_waits:
            self.alarms = BudgetAlarms(self._program)

    def attach(self, index: int, go: GoTarget) -> int:
        """Attach the probes of every wait, give the target the number `index`, and record it.

        After an earlier recording, its sums go on. Returns the start time (CLOCK_MONOTONIC, ns).
        Raises AttachFailed.
        """
        self.attach_probes(index, go)
        began_ns = kernel_now_ns()
        self.record_from(index, 0)
        return began_ns

    def attach_probes(self, index: int, go: GoTarget) -> None:
        """Attach the probes to a target as attach() does, without recording yet."""
        if index in self._attached:
            self.tables.forget_waits(index)
        self._know(index, go).every_until_ns = FOREVER_NS
        with self._all_or_none(index):
            if self._config.run_queue:
                self._watch_only_runs(index, go)
            probes = [self._sites.probes(index, go, code) for code in go.probed]
            self._attach(probes, index, self._groups(index))

    def attach_one_in_eight(
        self, index: int, go: GoTarget, began_ns: int | None = None, *, is_window: bool = False
    ) -> int:
        """Attach the probes of one wait in eight to a target, and record it.

        If every wait was recorded until now, that ends at the same moment. Waits that began before
        `began_ns`, or before that moment, don't count. All probes of a window are detached
        together. Returns the start time (CLOCK_MONOTONIC, ns). Raises AttachFailed, also where the
        places are not found.
        """
        known = self._attached.get(index)
        continues = known is not None and known.begun_ns is not None
        if known and not continues:
            self.tables.forget_waits(index)
        if not continues:
            self._know(index, go)
        target = self._attached[index]
        target.places = target.places or _tracked_places(go)
        if continues and self._config.run_queue:
            self.unwatch_runs(index)
        target.needed_before = self._needed_runs(index)
        fields = tracking_fields(go, target.places[0], hit_ns=self.hit_ns or 0.0)
        self._program.maps["trackings"].set_struct(index, fields)
        probes = [
            self._sites.tracked_probes(index, go, code, places)
            for code, places in zip(go.probed, target.places, strict=True)
        ]
        groups = self._tracked_groups(index)
        with self._all_or_none(index):
            if is_window:  # a process for each group takes us some milliseconds
                together = zip(probes, self._run_probes(index), strict=True)
                self._attach([own + runs for own, runs in together], index, groups)
            else:
                self._attach(probes, index, groups)
                self.watch_runs(index)
        now_ns = target.every_until_ns = kernel_now_ns()
        fields |= {"began_ns": now_ns if began_ns is None else began_ns, "attached_ns": now_ns}
        self._program.maps["trackings"].set_struct(index, fields)
        self.record_from(index, 0)
        return now_ns

    def watch_runs(self, index: int) -> None:
        """Attach the probes where tracked goroutines begin to run, too. Raises AttachFailed.

        They show how long goroutines are in the run queue, and which parks are repeated.
        """
        self._attach(self._run_probes(index), index, self._run_groups(index))

    def _run_probes(self, index: int) -> list[list[Uprobe]]:
        target = self._attached[index]
        return [
            self._sites.run_probes(index, code, places)
            for code, places in zip(target.go.probed, target.places, strict=True)
        ]

    def _watch_only_runs(self, index: int, go: GoTarget) -> None:
        """Add up how long goroutines are in the run queue, beside the record of every wait."""
        target = self._attached[index]
        target.places = target.places or _tracked_places(go)
        fields = tracking_fields(go, target.places[0], only_runs=True)
        self._program.maps["trackings"].set_struct(index, {**fields, "attached_ns": 0})
        probes = [
            self._sites.run_probes(index, code, places, has_ends=True)
            for code, places in zip(go.probed, target.places, strict=True)
        ]
        self._attach(probes, index, self._run_groups(index))

    def needs_runs(self, index: int) -> bool:
        """Whether more of what these probes show is needed, of the recording since it was attached.

        They are passed before a goroutine does its next step, so they change what it waits for. If
        none waits for a semaphore they are not needed, unless the time in the run queue is asked
        for. In the first second, each stack that comes needs some.
        """
        counts, before = self._needed_runs(index), self._attached[index].needed_before
        parks, runs = (counts[name] - before.get(name, 0) for name in ("parks", "runs"))
        is_young = kernel_now_ns() < self._attached[index].every_until_ns + _YOUNG_NS
        return parks > 0 and (is_young or runs < max(_ENOUGH_RUNS, parks / TRACKING_PERIOD))

    def _needed_runs(self, index: int) -> dict[str, int]:
        return self._program.maps["needed_runs"].sum_at(index)

    def unwatch_runs(self, index: int) -> None:
        """Detach these probes."""
        self._program.detach_uprobes(self._run_groups(index), for_a_while=True)

    def detach_every_wait(self, index: int) -> None:
        """Detach the probes of every wait, which one in eight replaces."""
        self._program.detach_uprobes(self._groups(index))

    def note_sample(self, index: int, before_ns: int) -> None:
        """A goroutine sample is about to be taken; the one before was at `before_ns` (0: none).

        Goroutine samples count the waits that two of them saw. CLOCK_MONOTONIC, ns.
        """
        self._program.maps["samples"].set_struct(index, {"before_last_ns": before_ns})

    def _know(self, index: int, go: GoTarget) -> AttachedTarget:
        """Describe a target to the program, without recording it yet."""
        known = self._attached.get(index)
        if known is None or known.go is not go:
            fields = target_fields(go, has_labels=self._config.labels)
            self._attached[index] = AttachedTarget(go, fields)
            parks = frozenset(park.return_pc + go.load_bias for park in go.sites.parks)
            self.tables.stacks.parks[index] = parks
        self._describe(index)
        if go.runtime_locks:
            self._program.maps["runtime_layouts"].set_struct(index, runtime_locks.layout_fields(go))
        return self._attached[index]

    def _attach(
        self, probes: Sequence[Sequence[Uprobe]], index: int, groups: Sequence[int]
    ) -> None:
        go = self._attached[index].go
        for group, code, probe in zip(groups, go.probed, probes, strict=True):
            self._program.attach_uprobes(
                code.elf.fd, go.target.pid, probe, anchor=code.anchor, group=group
            )

    @contextmanager
    def _all_or_none(self, index: int) -> Iterator[None]:
        """Detach all probes of a target if something fails, or on Ctrl-C."""
        try:
            yield
        except BaseException:  # Ctrl-C too: no probe may stay in the target
            self.detach_target(index)
            raise

    def _groups(self, index: int) -> list[int]:
        """The groups of probes of every wait, one for each file of a target."""
        return [
            index + self._targets * number for number in range(len(self._attached[index].go.probed))
        ]

    def _tracked_groups(self, index: int) -> list[int]:
        """The same for those of one wait in eight."""
        return [~group for group in self._groups(index)]

    def _run_groups(self, index: int) -> list[int]:
        """The same for those where tracked goroutines begin to run."""
        files = len(self._attached[index].go.probed)
        return [-1 - self._targets * (files + number) - index for number in range(files)]

    def _all_groups(self, index: int) -> list[int]:
        return self._groups(index) + self._tracked_groups(index) + self._run_groups(index)

    def record_from(self, index: int, begin_ns: int) -> None:
        """Record a target with attached probes from a moment on (CLOCK_MONOTONIC, ns).

        Until then, seed() tells the kernel about parked goroutines, and probes update these.
        """
        self._describe(index, begin_ns, FOREVER_NS)

    def record_until(self, index: int, end_ns: int) -> None:
        """Record nothing after a moment from now on (CLOCK_MONOTONIC, ns)."""
        known = self._attached.get(index)
        if known is None or known.begun_ns is None:
            return
        self._describe(index, known.begun_ns, end_ns)

    def seed(self, index: int, parked: ParkedGoroutine) -> None:
        """Put a goroutine that was parked a moment ago into the kernel's table.

        If the target has woken it meanwhile, the probe's event overrides this.
        """
        is_lock = _waits_for_lock(self._attached[index].go, parked)
        self._program.run(
            "seed",
            index,
            parked.address,
            parked.return_pcs[0],
            parked.sema if is_lock else 0,
            int(parked.sema != 0),
        )

    @property
    def has_labels(self) -> bool:
        """Whether it records the labels of goroutines."""
        return self._config.labels

    @property
    def has_wakers(self) -> bool:
        """Whether it records who woke whom."""
        return self._config.wakers

    def pause(self, index: int) -> None:
        """End the recording of a target, and detach its probes until it is attached again."""
        self._describe(index)
        self._program.detach_uprobes(self._all_groups(index), for_a_while=True)

    def stop_recording(self, index: int) -> None:
        """Record nothing from now on; the probes stay attached."""
        self._describe(index)

    def poll(self) -> None:
        """Read missing label pages; call it some times a second during a recording."""
        if self._config.labels:
            # A copy, since other threads attach targets meanwhile.
            attached = dict(self._attached)
            targets = {index: recording.go.target for index, recording in attached.items()}
            self._absent_labels.bring(targets)

    def stop(self) -> None:
        """End the recording of all targets now: later events are not recorded."""
        for index in self._attached:
            self._describe(index)

    def detach(self) -> None:
        """Detach all probes; the sums stay readable."""
        self._program.detach()

    def detach_target(self, index: int) -> None:
        """End the recording of one target and detach its probes; the sums stay readable."""
        if index in self._attached:
            self._describe(index)
            self._program.detach_uprobes(self._all_groups(index))

    def forget(self, index: int) -> None:
        """Delete all data of a target without attached probes, so that its number is free."""
        if self._attached.pop(index, None) is not None:
            self.tables.forget(index)
            self._sites.forget(index)
            if self.alarms:
                self.alarms.forget(index)

    def losses(self) -> Sequence[Loss]:
        """What was lost so far of each target, also of earlier ones with its number."""
        if not self._program.is_loaded:
            return ()
        lost = losses(self._program.maps["losses"].numbers())
        return [replace(loss, kinds=_KINDS_OF_LOSSES.get(loss.name, ())) for loss in lost]

    def close(self) -> None:
        """Detach the probes and free the maps."""
        self._absent_labels.close()
        if self.alarms:
            self.alarms.close()
        self._program.close()

    def _describe(self, index: int, begin_ns: int = 0, end_ns: int = 0) -> None:
        target = self._attached[index]
        target.begun_ns = begin_ns if end_ns else None
        window = {"active": int(end_ns > 0), "begin_ns": begin_ns, "end_ns": end_ns}
        window["every_until_ns"] = min(target.every_until_ns, end_ns)
        self._program.maps["targets"].set_struct(index, {**target.fields, **window})


def _wake_function(config: WaitsConfig) -> str:
    return "on_wake" if config.block else "on_release"


def _tracked_functions(config: WaitsConfig) -> tuple[str, ...]:
    of_waiters = ("on_tracked_end", "on_tracked_run") if config.has_waiters else ()
    of_releases = ("on_tracked_lock", "on_tracked_release") if config.mutex else ()
    return "on_tracked_begin", *of_waiters, *of_releases


def _tracked_places(go: GoTarget) -> tuple[TrackedWaitSites, ...]:
    """The places of one wait in eight in each file of a target. Raises AttachFailed."""
    try:
        return tuple(tracked_wait_sites(code.binary) for code in go.probed)
    except SymbolizerError as error:
        raise AttachFailed(
            f"One wait in eight can't be recorded of process {go.target.pid}: {error}. Record "
            "every wait: --max-overhead 0."
        ) from error


def _waits_for_lock(go: GoTarget, parked: ParkedGoroutine) -> bool:
    """Whether it waits for a lock of package sync, by the caller of semacquire1 (locks.h)."""
    callers = go.sites.semaphores.lock_callers if go.sites.semaphores else ()
    return len(parked.return_pcs) > 1 and parked.return_pcs[1] - go.load_bias in callers
