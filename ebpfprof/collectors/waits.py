"""Waits: probes where goroutines park, wake and release locks; sums by stack out of the maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from ebpfprof import labels
from ebpfprof.collectors import runtimelocks
from ebpfprof.keeper import Uprobe
from ebpfprof.loader import Program
from ebpfprof.losses import Loss, losses
from ebpfprof.overhead import Runs, runs
from ebpfprof.profile import Label

if TYPE_CHECKING:  # the session imports them while BCC compiles
    from ebpfprof.gotarget import GoTarget
    from symbolizer import RuntimeLayout

_MAX_WAITS = 1 << 18
_MAX_STACKS = 1 << 14
_MAX_STACKS_BY_LOCK = 1 << 15
_FEW_TARGETS = 8
_MANY_STACKS = 4  # times as many where there are more targets
_MAX_LOCKS = 1 << 16
_MAX_DEPTH = 136  # more than Go's 128 logical frames and those that it drops at the leaf
_MAX_LOCK_CALLERS = 4  # as symbolizer.semaphores has it, which is imported later
_COUNT_SHIFT = 16
_SITES_PER_TARGET = 64
_WAITS, _WOKEN = 1, 2  # bpf/waits.bpf.c, enum state
_TARGET_SHIFT = 48  # bpf/target.h, goroutine_key

# The runtime.waitReason with which runtime.semacquire1 parks (runtime/sema.go).
_SEMAPHORE_REASONS = (
    "Semacquire",
    "SyncMutexLock",
    "SyncRWMutexRLock",
    "SyncRWMutexLock",
    "SyncWaitGroupWait",
    "SynctestWaitGroupWait",
)

Waiting = Literal["block", "mutex"]
_KINDS: Final[tuple[Waiting, ...]] = ("block", "mutex")  # by number: bpf/totals.h


@dataclass(frozen=True, slots=True)
class Recipe:
    """What to record: one of `block` and `mutex` or both.

    `block_rate_ns` is Go's block profile rate: waits that long and longer are all taken, of
    shorter ones as many as their length bears to it; 1 takes every wait. Of releases, one in
    `mutex_fraction` is taken. With `by_lock`, locks are told apart, and who waited for a lock is
    recorded also without `block`. With `runtime_locks`, the mutex profile has those of the Go
    runtime, too. With `labels`, goroutines are told apart by the labels that they have.
    """

    block: bool
    mutex: bool
    block_rate_ns: int = 1
    mutex_fraction: int = 1
    by_lock: bool = False
    runtime_locks: bool = False
    labels: bool = True


@dataclass(frozen=True, slots=True)
class StackTotal:
    """What one stack of one target has waited (block) or made others wait (mutex).

    `return_pcs` are return addresses, innermost first: from the park, or from the wake in
    semrelease1. `sema` is the address of the lock's semaphore where locks are told apart, else 0.
    `count` is not whole under sampling: a short wait then stands for several. `labels` are those of
    the goroutine that waited or released.
    """

    kind: Waiting
    sema: int
    return_pcs: tuple[int, ...]
    count: float
    delay_ns: int
    labels: tuple[Label, ...] = ()


@dataclass(frozen=True, slots=True)
class Hold:
    """How often, and how long in all, a lock was held between two hand-overs that were seen."""

    count: int = 0
    held_ns: int = 0


@dataclass(frozen=True, slots=True)
class Begun:
    """The last wait of a goroutine: when it began (CLOCK_MONOTONIC), and whether it lasts.

    `woken_ns` is when it was woken from it last, 0 if it was not. One in semacquire1 may park once
    more after that.
    """

    start_ns: int
    waits: bool
    woken_ns: int = 0


@dataclass(frozen=True, slots=True)
class _KnownStack:
    """A row of the map `stacks`."""

    target: int
    kind: Waiting
    sema: int
    return_pcs: tuple[int, ...]
    labels: tuple[Label, ...]


class WaitsCollector:
    """The program, loaded once, with the probes of any number of targets."""

    def __init__(self, targets: int, recipe: Recipe) -> None:
        """Compile and load for up to so many targets. Raises what Program raises."""
        self._recipe = recipe
        self._sites: dict[tuple[int, str, int], int] = {}
        self._free_sites: list[int] = []
        self._known_stacks: dict[int, _KnownStack] = {}
        self._attached: dict[int, GoTarget] = {}
        self._wake = "on_wake" if recipe.block else "on_release"
        self._program = Program(
            "waits.bpf.c",
            {
                "WITH_BLOCK": int(recipe.block),
                "WITH_MUTEX": int(recipe.mutex),
                "BY_LOCK": int(recipe.by_lock),
                "WITH_LABELS": int(recipe.labels),
                "WITH_RUNTIME_LOCKS": int(recipe.runtime_locks),
                "BLOCK_RATE_NS": f"{recipe.block_rate_ns}ULL",
                "MUTEX_FRACTION": f"{recipe.mutex_fraction}ULL",
                "MAX_TARGETS": targets,
                "MAX_SITES": targets * _SITES_PER_TARGET,
                "MAX_WAITS": _MAX_WAITS,
                "MAX_STACKS": _max_stacks(targets, recipe),
                "MAX_LOCKS": _MAX_LOCKS,
                "MAX_LABEL_SETS": labels.MAX_LABEL_SETS,
                "MAX_SLEEPERS": runtimelocks.MAX_SLEEPERS,
                "MAX_DEPTH": _MAX_DEPTH,
                "LOCK_CALLERS": _MAX_LOCK_CALLERS,
                "COUNT_SHIFT": _COUNT_SHIFT,
            },
            functions=(
                *("on_wait", "on_settled", self._wake),
                *(runtimelocks.FUNCTIONS if recipe.runtime_locks else ()),
            ),
        )

    def attach(self, index: int, go: GoTarget) -> None:
        """Put the probes into a target, which becomes number `index`, and begin to record it.

        It may have had them before: the sums go on. Raises AttachFailed.
        """
        if index in self._attached:
            self._forget_waits(index)
        self._attached[index] = go
        self._describe(index, go, active=False)
        if go.runtime_locks:
            self._program.set_element("runtime_layouts", index, runtimelocks.layout_fields(go))
        self._program.attach_uprobes(
            go.target.exe_fd,
            go.target.pid,
            self._probes(index, go),
            anchor_offset=go.file_offset(go.sites.anchor_pc),
            group=index,
        )
        self._describe(index, go, active=True)

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
                for probe in runtimelocks.probes(go)
            ]
        return probes

    def stop(self) -> None:
        """End the recording of all targets at once: what happens from now on leaves no trace."""
        for index, go in self._attached.items():
            self._describe(index, go, active=False)

    def detach(self) -> None:
        """Remove all probes; the sums stay readable."""
        self._program.detach()

    def detach_target(self, index: int) -> None:
        """End the recording of one target and remove its probes; the sums stay readable."""
        if index in self._attached:
            self._describe(index, self._attached[index], active=False)
            self._program.detach_uprobes([index])

    def forget(self, index: int) -> None:
        """Forget all of a target whose probes are out; another may be number `index` then."""
        if self._attached.pop(index, None) is None:
            return
        self._forget_waits(index)
        keys, stacks = self._program.read_hash("stacks")
        ours = keys[stacks["group"]["target"] == index]
        for table in ("totals", "stacks"):
            self._program.delete_rows(table, ours)
        for key in ours.tolist():
            self._known_stacks.pop(key, None)
        for site in [site for site in self._sites if site[0] == index]:
            self._free_sites.append(self._sites.pop(site))

    def snapshot(self) -> dict[int, list[StackTotal]]:
        """The sums since the start, by target. Never decreasing from one call to the next."""
        keys, totals = self._program.read_hash("totals")
        if any(key not in self._known_stacks for key in keys.tolist()):
            self._read_stacks()
        found: dict[int, list[StackTotal]] = {}
        counts = totals["count"].tolist()
        for key, count, delay_ns in zip(
            keys.tolist(), counts, totals["delay_ns"].tolist(), strict=True
        ):
            stack = self._known_stacks.get(key)
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

    def runs(self) -> list[Runs]:
        """What the probes of each target cost so far, by its number."""
        costs = self._program.read_per_cpu("costs")
        return [runs(cost["runs"], cost["timed"], cost["timed_ns"]) for cost in costs]

    @property
    def failure(self) -> Exception | None:
        """Why nothing was recorded any more before the end, if that is so."""
        return self._program.failure

    def losses(self) -> Sequence[Loss]:
        """What was lost so far, all targets together."""
        return losses(self._program.read_array("losses"))

    def close(self) -> None:
        """Remove the probes and free the maps."""
        self._program.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read_stacks(self) -> None:
        """Take note of the stacks that are new: once written, they don't change."""
        sets = self._label_sets()
        for key, stack in zip(*self._program.read_hash("stacks"), strict=True):
            depth, number = int(stack["depth"]), int(key)
            if depth and number not in self._known_stacks:
                group = stack["group"]
                self._known_stacks[number] = _KnownStack(
                    int(group["target"]),
                    _KINDS[group["kind"]],
                    int(group["sema"]),
                    tuple(stack["pcs"][:depth].tolist()),
                    sets.get(int(group["labels"]), ()),
                )

    def _forget_waits(self, index: int) -> None:
        """Forget who waited when the target was watched last: its wake was not seen."""
        tables = ["waits"]
        tables += ["locks"] if self._recipe.mutex or self._recipe.by_lock else []
        tables += ["sleepers"] if self._recipe.runtime_locks else []
        for table in tables:
            keys, _ = self._program.read_hash(table)
            self._program.delete_rows(table, keys[keys >> _TARGET_SHIFT == index])

    def _label_sets(self) -> dict[int, tuple[Label, ...]]:
        if not self._recipe.labels:
            return {}
        return labels.label_sets(*self._program.read_hash("label_sets"))

    def _describe(self, index: int, go: GoTarget, *, active: bool) -> None:
        layout = go.binary.layout
        fields: dict[str, Any] = {
            "active": int(active),
            "sched_bp_offset": layout.offset("g", "sched.bp"),
            "status_offset": layout.offset("g", "atomicstatus"),
            "m_offset": layout.offset("g", "m"),
            "curg_offset": layout.offset("m", "curg"),
            "wait_reason_offset": layout.offset("g", "waitreason"),
            "semaphore_reasons": _semaphore_reasons(layout),
            "callback": _callback_fields(go),
            **labels.target_fields(layout),
        }
        if go.sites.semaphores:
            fields["sema_offset"] = go.sites.semaphores.address_offset
            fields["lock_callers"] = [pc + go.load_bias for pc in go.sites.semaphores.lock_callers]
        self._program.set_element("targets", index, fields)

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
        return Uprobe(function, go.file_offset(pc), cookie=site)


def _max_stacks(targets: int, recipe: Recipe) -> int:
    stacks = _MAX_STACKS_BY_LOCK if recipe.by_lock else _MAX_STACKS
    return stacks * (_MANY_STACKS if targets > _FEW_TARGETS else 1)


def _semaphore_reasons(layout: RuntimeLayout) -> int:
    """A bit for each wait reason of semacquire1 that this version of Go has."""
    known = layout.wait_reasons
    return sum(1 << known[name] for name in _SEMAPHORE_REASONS if name in known)


def _callback_fields(go: GoTarget) -> dict[str, int]:
    callback = go.callback
    if callback is None:
        return {}
    return {
        "return_pc": callback.return_pc + go.load_bias,
        "switch_pc": callback.switch_pc + go.load_bias,
        "switch_offset": callback.switch_offset,
        "caller_offset": callback.caller_offset,
        "frame_offset": callback.frame_offset,
    }
