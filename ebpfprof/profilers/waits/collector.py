"""Waits: probes where goroutines park, wake and release locks; sums by stack out of the maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ebpfprof.kernel import c_facts
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.kernel.losses import Loss, losses
from ebpfprof.kernel.program import BpfProgram
from ebpfprof.overhead.cost import Runs, runs
from ebpfprof.profilers import labels
from ebpfprof.profilers.label_pages import AbsentLabels
from ebpfprof.profilers.waits import runtime_locks
from ebpfprof.profilers.waits.probe_sites import SITES_PER_TARGET, SiteTable
from ebpfprof.profilers.waits.rows import (
    KnownStack,
    WaitsConfig,
)
from ebpfprof.profilers.waits.tables import COUNT_SHIFT, WaitTables
from ebpfprof.profilers.waits.target_layout import target_fields
from ebpfprof.system.closing import Closing

if TYPE_CHECKING:  # the session imports them while BCC compiles
    from ebpfprof.goruntime.goroutines import ParkedGoroutine
    from ebpfprof.goruntime.process import GoTarget

_WAITERS_BITS = c_facts.number("waits/locks.h", "WAITERS_BITS")
_MAX_WAITS = (1 << _WAITERS_BITS) - 1  # rows of goroutines that wait: as many as a lock can count
_USUAL_WAITS = 1 << 18
_GROWTH = 4  # times as many goroutines as now may come to wait
_MAX_STACKS = 1 << 15
_MANY_STACKS = 2  # times as many where locks are told apart, and where there are more targets
_FEW_TARGETS = 8
_MAX_LOCKS = 1 << 16
_MAX_DEPTH = 136  # more than Go's 128 logical frames and those that it drops at the leaf
_MAX_LOCK_CALLERS = 4  # as symbolizer.codeanalysis.semaphores has it, which is imported later
_LARGE_MAPS = ("MAX_WAITS", "MAX_STACKS", "MAX_LOCKS", "MAX_LABEL_SETS", "MAX_SLEEPERS")
FOREVER_NS: Final = (1 << 64) - 1
"""The end of a window that has none."""


class WaitsCollector(Closing):
    """The program, loaded once, with the probes of any number of targets."""

    def __init__(self, targets: int, config: WaitsConfig) -> None:
        """Begin to compile for up to so many targets; load() ends it. Raises as BpfProgram."""
        self._config = config
        self._targets = targets
        self._attached: dict[int, GoTarget] = {}
        self._fields: dict[int, dict[str, Any]] = {}
        self._wake = "on_wake" if config.block else "on_release"
        self._program = BpfProgram(
            "waits/waits.bpf.c",
            {
                "WITH_BLOCK": int(config.block),
                "WITH_MUTEX": int(config.mutex),
                "BY_LOCK": int(config.by_lock),
                "WITH_LABELS": int(config.labels),
                **labels.macros(config.label_keys),
                "WITH_RUNTIME_LOCKS": int(config.runtime_locks),
                "WITH_WINDOWS": int(config.windows),
                "BLOCK_RATE_NS": f"{config.block_rate_ns}ULL",
                "MUTEX_FRACTION": f"{config.mutex_fraction}ULL",
                "MAX_TARGETS": targets,
                "MAX_SITES": targets * SITES_PER_TARGET,
                # BCC makes maps, too, which nobody uses: those that are large come with load().
                **dict.fromkeys(_LARGE_MAPS, 1),
                "MAX_DEPTH": _MAX_DEPTH,
                "LOCK_CALLERS": _MAX_LOCK_CALLERS,
                "COUNT_SHIFT": COUNT_SHIFT,
            },
            functions=(
                *("on_wait", "on_settled", self._wake),
                *(runtime_locks.FUNCTIONS if config.runtime_locks else ()),
            ),
            own_functions=("seed",) if config.windows else (),
        )
        self.tables = WaitTables(self._program, config)
        self._sites = SiteTable(self._program, config)
        self._absent_labels = AbsentLabels(self._program)
        self._unlabelled = 0

    def load(self, goroutines: int = 0) -> None:
        """Make the maps and load the program, which takes nothing yet.

        `goroutines` is how many the targets have now, if it is known. Raises what BpfProgram does.
        """
        stacks = _MAX_STACKS * (_MANY_STACKS if self._config.by_lock else 1)
        stacks *= _MANY_STACKS if self._targets > _FEW_TARGETS else 1
        rows = {
            "waits": min(max(_USUAL_WAITS, _GROWTH * goroutines), _MAX_WAITS),
            "stacks": stacks,
            "totals": stacks,
            "locks": _MAX_LOCKS,
            "label_sets": labels.MAX_LABEL_SETS,
            "sleepers": runtime_locks.MAX_SLEEPERS,
        }
        self._program.load(rows, grows=frozenset(rows))
        labels.choose(self._program, self._config.label_keys)
        self.tables.stacks.keep_labelled(stacks // 2)

    def attach(self, index: int, go: GoTarget) -> int:
        """Put the probes into a target, which becomes number `index`, and begin to record it.

        It may have had them before: the sums go on. Returns when it began (CLOCK_MONOTONIC, ns).
        Raises AttachFailed.
        """
        self.put_in(index, go)
        began_ns = kernel_now_ns()
        self.open_window(index, 0, FOREVER_NS)
        return began_ns

    def put_in(self, index: int, go: GoTarget) -> None:
        """Put the probes into a target, as attach(); nothing is recorded yet."""
        if index in self._attached:
            self.tables.forget_waits(index)
        if self._attached.get(index) is not go:
            self._fields[index] = target_fields(go, has_labels=self._config.labels)
            self._attached[index] = go
        self._describe(index)
        if go.runtime_locks:
            self._program.maps["runtime_layouts"].set_struct(index, runtime_locks.layout_fields(go))
        self._program.attach_uprobes(
            go.target.exe_fd,
            go.target.pid,
            self._sites.probes(index, go),
            anchor=(go.file_offset(go.sites.anchor_pc), go.sites.anchor_pc + go.load_bias),
            group=index,
        )

    def open_window(self, index: int, begin_ns: int, end_ns: int) -> None:
        """Record a target whose probes are in, between two times of CLOCK_MONOTONIC.

        What happens until the first of them prepares it: see seed. The second may be changed as
        long as it is not past.
        """
        self._describe(index, begin_ns, end_ns)

    def seed(self, index: int, parked: ParkedGoroutine) -> None:
        """Tell of a goroutine that was parked a moment ago, before a window begins.

        If it was woken meanwhile, the kernel knows better.
        """
        is_lock = _waits_for_lock(self._attached[index], parked)
        self._program.run(
            "seed",
            index,
            parked.address,
            parked.return_pcs[0],
            parked.sema if is_lock else 0,
            int(parked.sema != 0),
        )

    def stack_of(self, index: int, parked: ParkedGoroutine) -> KnownStack:
        """What a wait is added up as that the kernel never walked."""
        sema = (
            parked.sema
            if self._config.by_lock and _waits_for_lock(self._attached[index], parked)
            else 0
        )
        self._unlabelled += parked.labels is None
        return KnownStack(index, "block", sema, parked.return_pcs, parked.labels or ())

    @property
    def has_labels(self) -> bool:
        """Whether goroutines are told apart by their labels."""
        return self._config.labels

    def close_window(self, index: int) -> None:
        """Take the probes of a target out until they are put in again."""
        self._program.detach_uprobes([index], for_a_while=True)
        self._describe(index)

    def poll(self) -> None:
        """See to it that labels can be read; to be called now and then while it records."""
        if self._config.labels:
            # A copy: other threads attach meanwhile.
            targets = {index: go.target for index, go in dict(self._attached).items()}
            self._absent_labels.bring(targets)

    def stop(self) -> None:
        """End the recording of all targets at once: what happens from now on leaves no trace."""
        for index in self._attached:
            self._describe(index)

    def detach(self) -> None:
        """Remove all probes; the sums stay readable."""
        self._program.detach()

    def detach_target(self, index: int) -> None:
        """End the recording of one target and remove its probes; the sums stay readable."""
        if index in self._attached:
            self._describe(index)
            self._program.detach_uprobes([index])

    def forget(self, index: int) -> None:
        """Forget all of a target whose probes are out; another may be number `index` then."""
        if self._attached.pop(index, None) is not None:
            del self._fields[index]
            self.tables.forget(index)
            self._sites.forget(index)

    @property
    def hit_ns(self) -> float | None:
        """What it costs a thread to pass a probe, in ns, without the program; None if unknown."""
        return self._program.hit_ns

    def runs(self, index: int) -> Runs:
        """What the probes of a target cost so far."""
        cost = self._program.maps["costs"].sum_at(index)
        return runs(cost["runs"], cost["timed"], cost["timed_ns"])

    @property
    def failure(self) -> Exception | None:
        """Why nothing was recorded any more before the end, if that is so."""
        return self._program.failure

    def losses(self) -> Sequence[Loss]:
        """What was lost so far, all targets together."""
        more = {"labels_unreadable": self._unlabelled}
        return losses(self._program.maps["losses"].numbers(), more)

    def close(self) -> None:
        """Remove the probes and free the maps."""
        self._absent_labels.close()
        self._program.close()

    def _describe(self, index: int, begin_ns: int = 0, end_ns: int = 0) -> None:
        window = {"active": int(end_ns > 0), "begin_ns": begin_ns, "end_ns": end_ns}
        self._program.maps["targets"].set_struct(index, {**self._fields[index], **window})


def _waits_for_lock(go: GoTarget, parked: ParkedGoroutine) -> bool:
    """Whether it waits for a lock of sync's, by the caller of semacquire1: bpf/waits/locks.h."""
    callers = go.sites.semaphores.lock_callers if go.sites.semaphores else ()
    return len(parked.return_pcs) > 1 and parked.return_pcs[1] - go.load_bias in callers
