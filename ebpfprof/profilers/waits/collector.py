"""Waits: probes where goroutines park, wake and release locks; sums by stack out of the maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Self

from ebpfprof.kernel import c_facts
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.kernel.losses import Loss, losses
from ebpfprof.kernel.program import Program
from ebpfprof.kernel.uprobe_helper import Uprobe
from ebpfprof.overhead.cost import Runs, runs
from ebpfprof.profilers import labels
from ebpfprof.profilers.label_pages import AbsentLabels
from ebpfprof.profilers.waits import runtime_locks
from ebpfprof.profilers.waits.rows import (
    Begun,
    Hold,
    KnownStack,
    QueueRow,
    Recipe,
    StackTotal,
    WaitRow,
)
from ebpfprof.profilers.waits.stack_table import StackTable
from ebpfprof.profilers.waits.target_layout import target_fields

if TYPE_CHECKING:  # the session imports them while BCC compiles
    from ebpfprof.goruntime.goroutines import ParkedGoroutine
    from ebpfprof.goruntime.process import GoTarget

_UNIT_SHIFT = c_facts.number("waits/locks.h", "UNIT_SHIFT")
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
_COUNT_SHIFT = 16
_SITES_PER_TARGET = 64
_STATES = c_facts.enum("waits/waits.bpf.c", "state")
_OVER, _WAITS, _WOKEN = (_STATES[name] for name in ("OVER", "WAITS", "WOKEN"))
FOREVER_NS: Final = (1 << 64) - 1
"""The end of a window that has none."""
_TARGET_SHIFT = c_facts.number("common/keys.h", "TARGET_SHIFT")


class WaitsCollector:
    """The program, loaded once, with the probes of any number of targets."""

    def __init__(self, targets: int, recipe: Recipe) -> None:
        """Begin to compile for up to so many targets; load() ends it. Raises what Program does."""
        self._recipe = recipe
        self._targets = targets
        self._sites: dict[tuple[int, str, int], int] = {}
        self._free_sites: list[int] = []
        self._attached: dict[int, GoTarget] = {}
        self._fields: dict[int, dict[str, Any]] = {}
        self._taken: dict[int, tuple[int, int]] = {}
        self._wake = "on_wake" if recipe.block else "on_release"
        self._program = Program(
            "waits/waits.bpf.c",
            {
                "WITH_BLOCK": int(recipe.block),
                "WITH_MUTEX": int(recipe.mutex),
                "BY_LOCK": int(recipe.by_lock),
                "WITH_LABELS": int(recipe.labels),
                **labels.macros(recipe.label_keys),
                "WITH_RUNTIME_LOCKS": int(recipe.runtime_locks),
                "WITH_WINDOWS": int(recipe.windows),
                "BLOCK_RATE_NS": f"{recipe.block_rate_ns}ULL",
                "MUTEX_FRACTION": f"{recipe.mutex_fraction}ULL",
                "MAX_TARGETS": targets,
                "MAX_SITES": targets * _SITES_PER_TARGET,
                # BCC makes maps, too, which nobody uses: those that are large come with load().
                **dict.fromkeys(_LARGE_MAPS, 1),
                "MAX_DEPTH": _MAX_DEPTH,
                "LOCK_CALLERS": _MAX_LOCK_CALLERS,
                "COUNT_SHIFT": _COUNT_SHIFT,
            },
            functions=(
                *("on_wait", "on_settled", self._wake),
                *(runtime_locks.FUNCTIONS if recipe.runtime_locks else ()),
            ),
            own_functions=("seed",) if recipe.windows else (),
        )
        self._stacks = StackTable(self._program, has_labels=recipe.labels)
        self._absent_labels = AbsentLabels(self._program)
        self._unlabelled = 0

    def load(self, goroutines: int = 0) -> None:
        """Make the maps and load the program, which takes nothing yet.

        `goroutines` is how many the targets have now, if it is known. Raises what Program does.
        """
        stacks = _MAX_STACKS * (_MANY_STACKS if self._recipe.by_lock else 1)
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
        labels.choose(self._program, self._recipe.label_keys)
        self._stacks.keep_labelled(stacks // 2)

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
            self._forget_waits(index)
        if self._attached.get(index) is not go:
            self._fields[index] = target_fields(go, has_labels=self._recipe.labels)
            self._attached[index] = go
        self._describe(index)
        if go.runtime_locks:
            self._program.set_element("runtime_layouts", index, runtime_locks.layout_fields(go))
        self._program.attach_uprobes(
            go.target.exe_fd,
            go.target.pid,
            self._probes(index, go),
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
        is_lock = self._is_lock(index, parked)
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
        sema = parked.sema if self._recipe.by_lock and self._is_lock(index, parked) else 0
        self._unlabelled += parked.labels is None
        return KnownStack(index, "block", sema, parked.return_pcs, parked.labels or ())

    @property
    def has_labels(self) -> bool:
        """Whether goroutines are told apart by their labels."""
        return self._recipe.labels

    def _is_lock(self, index: int, parked: ParkedGoroutine) -> bool:
        """Whether it waits for a lock of sync's, by who called semacquire1: bpf/waits/locks.h."""
        go = self._attached[index]
        callers = go.sites.semaphores.lock_callers if go.sites.semaphores else ()
        return len(parked.return_pcs) > 1 and parked.return_pcs[1] - go.load_bias in callers

    def close_window(self, index: int) -> None:
        """Take the probes of a target out until they are put in again."""
        self._program.detach_uprobes([index], for_a_while=True)
        self._describe(index)

    def waiting(self, index: int) -> list[WaitRow]:
        """Who waited in a target at the end of its window, as far as the kernel knows."""
        if not (self._recipe.block or self._recipe.by_lock):
            return []
        keys, waits = self._program.read_hash("waits")
        chosen = (keys >> _TARGET_SHIFT == index) & (waits["state"] != _OVER)
        gs = (keys[chosen] & ((1 << _TARGET_SHIFT) - 1)).tolist()
        rows = waits[chosen]
        columns = [rows[name].tolist() for name in ("state", "since_ns", "stack", "is_semaphore")]
        self._stacks.read(set(columns[2]))
        return [
            WaitRow(g, state == _WOKEN, since_ns, self._stacks.get(stack))
            for g, state, since_ns, stack, is_semaphore in zip(gs, *columns, strict=True)
            if state == _WAITS or is_semaphore
        ]

    def queues(self, index: int, end_ns: int) -> list[QueueRow]:
        """The locks of a target that were waited for in the window that ended then."""
        if not self._recipe.mutex:
            return []
        keys, locks = self._program.read_hash("locks")
        chosen = keys >> _TARGET_SHIFT == index
        found = []
        for key, lock in zip(keys[chosen].tolist(), locks[chosen], strict=True):
            left_ns = _left_in_queue_ns(int(lock["queue"]), int(lock["charged"]), end_ns)
            self._stacks.read({int(lock["releaser"])})
            releaser = self._stacks.get(int(lock["releaser"]))
            sema = key & ((1 << _TARGET_SHIFT) - 1)
            found.append(QueueRow(sema, left_ns, releaser))
        return found

    def take(self, index: int) -> dict[KnownStack, tuple[float, int]]:
        """What a target's stacks counted and delayed (ns) since they were taken last."""
        keys, totals = self._program.read_hash("totals")
        self._stacks.read(set(keys.tolist()))
        found = {}
        rows = (keys.tolist(), totals["count"].tolist(), totals["delay_ns"].tolist())
        for key, count, delay_ns in zip(*rows, strict=True):
            stack = self._stacks.get(key)
            count_before, delay_before_ns = self._taken.get(key, (0, 0))
            is_new = (count, delay_ns) != (count_before, delay_before_ns)
            if stack and stack.target == index and is_new:
                self._taken[key] = count, delay_ns
                more = (count - count_before) / (1 << _COUNT_SHIFT)
                found[stack] = more, delay_ns - delay_before_ns
        return found

    def _probes(self, index: int, go: GoTarget) -> list[Uprobe]:
        semaphores = go.sites.semaphores
        probes = []
        if self._recipe.block:
            probes.append(self._probe(index, go, "on_wake", go.sites.wake_pc))
        elif semaphores:
            probes += [
                self._probe(index, go, "on_release", release.call_pc, return_pc=release.return_pc)
                for release in semaphores.releases
            ]
        if semaphores:
            probes.append(self._probe(index, go, "on_settled", semaphores.settled_pc))
        for park in go.sites.parks:
            if self._recipe.block or park.is_semaphore:
                probes.append(
                    self._probe(
                        index,
                        go,
                        "on_wait",
                        park.start_pc,
                        return_pc=park.return_pc,
                        is_semaphore=park.is_semaphore,
                    )
                )
        if go.runtime_locks:
            probes += [
                self._probe(index, go, probe.function, probe.pc, return_pc=probe.return_pc)
                for probe in runtime_locks.probes(go)
            ]
        return probes

    def poll(self) -> None:
        """See to it that labels can be read; to be called now and then while it records."""
        if self._recipe.labels:
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
        if self._attached.pop(index, None) is None:
            return
        del self._fields[index]
        self._forget_waits(index)
        for key in self._stacks.forget(index):
            self._taken.pop(key, None)
        for site in [site for site in self._sites if site[0] == index]:
            self._free_sites.append(self._sites.pop(site))

    def snapshot(self) -> dict[int, list[StackTotal]]:
        """The sums since the start, by target. Never decreasing from one call to the next."""
        keys, totals = self._program.read_hash("totals")
        self._stacks.read(set(keys.tolist()))
        found: dict[int, list[StackTotal]] = {}
        counts = totals["count"].tolist()
        for key, count, delay_ns in zip(
            keys.tolist(), counts, totals["delay_ns"].tolist(), strict=True
        ):
            stack = self._stacks.get(key)
            if stack is None or not count:
                continue  # being written this moment: the next snapshot has it
            total = StackTotal(
                stack.kind,
                stack.sema,
                stack.return_pcs,
                count / (1 << _COUNT_SHIFT),
                delay_ns,
                stack.labels,
            )
            found.setdefault(stack.target, []).append(total)
        return found

    def holds(self) -> dict[int, dict[int, Hold]]:
        """How long locks were held, by target and semaphore; empty unless locks are told apart."""
        found: dict[int, dict[int, Hold]] = {}
        if not self._recipe.by_lock:
            return found
        for key, lock in zip(*self._program.read_hash("locks"), strict=True):
            if lock["holds"]:
                target, sema = divmod(int(key), 1 << _TARGET_SHIFT)
                hold = Hold(int(lock["holds"]), int(lock["held_ns"]))
                found.setdefault(target, {})[sema] = hold
        return found

    def begun(self) -> dict[int, dict[int, Begun]]:
        """The last wait of each goroutine, by target and address of the runtime.g."""
        found: dict[int, dict[int, Begun]] = {}
        for key, wait in zip(*self._program.read_hash("waits"), strict=True):
            target, g = divmod(int(key), 1 << _TARGET_SHIFT)
            state = int(wait["state"])
            woken_ns = int(wait["since_ns"]) if state == _WOKEN else 0
            begun = Begun(int(wait["start_ns"]), state == _WAITS, woken_ns)
            found.setdefault(target, {})[g] = begun
        return found

    @property
    def hit_ns(self) -> float | None:
        """What it costs a thread to pass a probe, in ns, without the program; None if unknown."""
        return self._program.hit_ns

    def runs(self, index: int) -> Runs:
        """What the probes of a target cost so far."""
        cost = self._program.read_per_cpu("costs", index)
        return runs(cost["runs"], cost["timed"], cost["timed_ns"])

    @property
    def failure(self) -> Exception | None:
        """Why nothing was recorded any more before the end, if that is so."""
        return self._program.failure

    def losses(self) -> Sequence[Loss]:
        """What was lost so far, all targets together."""
        more = {"labels_unreadable": self._unlabelled}
        return losses(self._program.read_array("losses"), more)

    def close(self) -> None:
        """Remove the probes and free the maps."""
        self._absent_labels.close()
        self._program.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _forget_waits(self, index: int) -> None:
        """Forget who waited when the target was watched last: its wake was not seen."""
        tables = ["waits"]
        tables += ["locks"] if self._recipe.mutex or self._recipe.by_lock else []
        tables += ["sleepers"] if self._recipe.runtime_locks else []
        for table in tables:
            keys, _ = self._program.read_hash(table)
            self._program.delete_rows(table, keys[keys >> _TARGET_SHIFT == index])

    def _describe(self, index: int, begin_ns: int = 0, end_ns: int = 0) -> None:
        window = {"active": int(end_ns > 0), "begin_ns": begin_ns, "end_ns": end_ns}
        self._program.set_element("targets", index, {**self._fields[index], **window})

    def _probe(
        self,
        index: int,
        go: GoTarget,
        function: str,
        pc: int,
        *,
        return_pc: int = 0,
        is_semaphore: bool = False,
    ) -> Uprobe:
        """Describe a place to the BPF programs; the probe to put there."""
        site = self._sites.get((index, function, pc))
        if site is None:
            site = self._free_sites.pop() if self._free_sites else len(self._sites)
            self._sites[index, function, pc] = site
        fields = {
            "return_pc": return_pc + go.load_bias if return_pc else 0,
            "target": index,
            "is_semaphore": int(is_semaphore),
        }
        self._program.set_element("sites", site, fields)
        return Uprobe(function, go.file_offset(pc), pc + go.load_bias, cookie=site)


def _left_in_queue_ns(queue: int, charged: int, end_ns: int) -> int:
    """What was waited and not charged until a time: charge() of bpf/waits/locks.h."""
    modulus = 1 << 64 - _WAITERS_BITS
    waiters = queue & ((1 << _WAITERS_BITS) - 1)
    waited = waiters * (end_ns >> _UNIT_SHIFT) - (queue >> _WAITERS_BITS)
    units = (waited - charged) % modulus
    return units << _UNIT_SHIFT if units < modulus // 2 else 0
