"""Loads the program of traces, and attaches it: at moments of the scheduler, context switches."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, Final

from ebpfprof.goruntime.limits import MAX_DEPTH, MAX_LOCK_CALLERS
from ebpfprof.kernel import c_facts
from ebpfprof.kernel.btf import field_offsets
from ebpfprof.kernel.program import BpfProgram
from ebpfprof.kernel.program_source import ProgramSource
from ebpfprof.kernel.uprobe_helper import Uprobe
from ebpfprof.profile.losses import Loss
from ebpfprof.profilers import labels
from ebpfprof.profilers.bounded_probes import BoundedProbes
from ebpfprof.profilers.cpu.learner import MAX_LINES, MAX_RULES
from ebpfprof.profilers.cpu.partial_samples import ring_bytes_for
from ebpfprof.profilers.cpu.unwinder import MAX_DEPTH as C_DEPTH
from ebpfprof.profilers.kernel_losses import losses
from ebpfprof.profilers.target_layout import target_fields
from ebpfprof.system.pid_namespace import sees_whole_machine
from ebpfprof.tracing.c_stacks import CStacks
from ebpfprof.tracing.polled_files import FILE_OFFSETS, MOST_FILES, file_offsets
from ebpfprof.tracing.rings import NO_RINGS, EventRings
from symbolizer.codeanalysis.annotation_sites import AnnotationSites
from symbolizer.codeanalysis.schedule_sites import ScheduleMoment, ScheduleSites

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.overhead.cost import Runs

_SOURCE: Final = "trace/trace.bpf.c"
_NUMBERS: Final = (
    *(*labels.NUMBERS, "FS_BASE_OFFSET", "TGID_OFFSET", "TID_OFFSET", "STATE_OFFSET"),
    *("STACK_OFFSET", *FILE_OFFSETS),
)
_MAX_SITES: Final = 64
_MAX_STACKS: Final = 1 << 15
_MAX_RINGS: Final = c_facts.number("trace/events.h", "MAX_RINGS")
_KINDS: Final = c_facts.enum("trace/events.h", "event_kind")
_SUBJECTS: Final = c_facts.enum(_SOURCE, "subject")
_WALKED: Final = c_facts.enum(_SOURCE, "walked")
_SWITCHES: Final = c_facts.number("trace/threads.h", "SWITCHES")
_WAKES: Final = c_facts.number("trace/threads.h", "WAKES")
_SEMAPHORE_PARKS: Final = c_facts.number("trace/waited_for.h", "SEMAPHORE_PARKS")
_OF_CGO: Final = "crosscall2"  # runtime/cgo/asm_amd64.s, Go 1.19 to 1.27
_OF_COROUTINES: Final = "runtime.corostart"  # runtime/coro.go, Go 1.23 to 1.27
# Whom a moment happens to, and whose stack belongs to it.
_TAKES: Final = {
    ScheduleMoment.PARK: ("IN_AX", "OF_SUBJECT"),
    ScheduleMoment.SUSPEND: ("IN_AX", "OF_SUBJECT"),
    ScheduleMoment.READY: ("IN_AX", "OF_RUNNER"),
    ScheduleMoment.NET_READY: ("IN_POLL", "NO_STACK"),
    ScheduleMoment.RUN: ("IN_AX", "NO_STACK"),
    ScheduleMoment.CREATE: ("IN_BX", "OF_RUNNER"),
    ScheduleMoment.EXIT: ("IN_AX", "NO_STACK"),
    ScheduleMoment.YIELD: ("IN_AX", "OF_SUBJECT"),
    ScheduleMoment.PREEMPT: ("IN_AX", "OF_SUBJECT"),
    ScheduleMoment.SWITCH: ("IN_AX", "OF_SUBJECT"),
}


def source(*, labels: bool, annotations: bool, c: bool) -> ProgramSource:
    """The program, with labels, annotations of the program and stacks of C code if set."""
    return ProgramSource(
        _SOURCE,
        {
            **dict.fromkeys(("BY_LOCK", "WITH_RUNTIME_LOCKS", "CROSSES_STACKS"), 0),
            "WITH_ALARM": 0,
            "WITH_LABELS": int(labels),
            "WITH_ANNOTATIONS": int(annotations),
            "WITH_C": int(c),
            "MAX_DEPTH": MAX_DEPTH,
            "C_DEPTH": C_DEPTH,
            "LOCK_CALLERS": MAX_LOCK_CALLERS,
            # BCC makes the maps, too, but load() makes large ones.
            **dict.fromkeys(("MAX_STACKS", "MAX_LABEL_SETS", "MAX_CHOSEN_LABELS"), 1),
            **dict.fromkeys(("MAX_LINES", "MAX_RULES", "RING_PAGES"), 1),
        },
        functions=("on_moment", *(("on_annotation",) if annotations else ())),
        own_functions=("on_switch", "on_waking"),
        numbers=_NUMBERS,
    )


def sources() -> Iterator[ProgramSource]:
    """The program with all combinations of options."""
    for has_labels, is_annotated, c in product((True, False), repeat=3):
        yield source(labels=has_labels, annotations=is_annotated, c=c)


class TraceProgram(BoundedProbes):
    """The BPF program, loaded once, with the probes of one process."""

    def __init__(
        self,
        go: GoTarget,
        sites: ScheduleSites,
        annotations: AnnotationSites,
        *,
        runs: bool,
        has_labels: bool,
    ) -> None:
        """Start to compile. With `runs`, it is probed when a goroutine begins to run, too.

        Raises GoTableError, or what BpfProgram and field_offsets raise.
        """
        self._go, self._sites, self._annotations = go, sites, annotations.sites
        self._runs, self._has_labels = runs, has_labels and go.sites.sets_labels
        self._tls_offset = go.g_offset()
        self.has_c = any(go.binary.functions_named(_OF_CGO))
        """Whether the program can call C."""
        thread, fs_base, tgid, tid, state, stack = field_offsets(
            ("task_struct", "thread"),
            ("thread_struct", "fsbase"),
            ("task_struct", "tgid"),
            ("task_struct", "pid"),
            ("task_struct", "__state"),
            ("task_struct", "stack"),
        )
        self._program = BpfProgram(
            source(labels=self._has_labels, annotations=bool(self._annotations), c=self.has_c),
            {
                **labels.numbers(()),
                "FS_BASE_OFFSET": thread + fs_base,
                "TGID_OFFSET": tgid,
                "TID_OFFSET": tid,
                "STATE_OFFSET": state,
                "STACK_OFFSET": stack,
                **file_offsets(),
            },
            {"MAX_TARGETS": 1 + max(_SWITCHES, _WAKES), "MAX_SITES": _MAX_SITES},
        )
        self._fields = target_fields(go, has_labels=self._has_labels)
        self.rings = NO_RINGS
        """The events, once it is loaded."""

    def load(self, rings: int, slots: int) -> None:
        """Make the maps, with that many rings of that many slots (a power of 2), and load the
        program.

        Raises as BpfProgram, or TargetGone.
        """
        rings = min(rings, _MAX_RINGS)
        rows = {"stacks": _MAX_STACKS, "events": rings * slots, "files": MOST_FILES}
        if self._has_labels:
            rows |= {"label_sets": labels.MAX_LABEL_SETS, "absent_labels": labels.MAX_LABEL_SETS}
        if self.has_c:
            rows |= {"lines": MAX_LINES, "rules": MAX_RULES, "unlearned": ring_bytes_for(1)}
        grows = frozenset({"stacks", "lines"})
        self._program.load(rows, grows=grows, mapped={"events", "rings"})
        maps = self._program.maps
        maps["ring_shape"].set_struct(0, {"count": rings, "mask": slots - 1})
        fields = _traced_fields(self._go, self._tls_offset)
        fields["made_in_bx"] = int(self._sites.tells_preemption)
        maps["traces"].set_struct(0, fields)
        self.record(is_on=False)
        for number, (moment, _) in enumerate(self._probed()):
            subject, walked = _TAKES.get(moment, ("NOBODY", "NO_STACK"))
            maps["sites"].set_struct(number, {"return_pc": 1, "target": 0})
            maps["moments"].set_struct(
                number,
                {
                    "kind": _KINDS[moment.name],
                    "subject": _SUBJECTS[subject],
                    "walks": _WALKED[walked],
                },
            )
        for number, annotation in enumerate(self._annotations, len(self._probed())):
            maps["sites"].set_struct(number, {"return_pc": 1, "target": 0})
            maps["moments"].set_struct(number, {"kind": _KINDS[annotation.moment.name]})
        self.rings = EventRings(maps["rings"].elements(), maps["events"].elements(), rings)

    def attach(self) -> None:
        """Attach the probes; record() begins to record. Raises AttachFailed and the like."""
        go = self._go
        probes = [
            Uprobe("on_moment", go.file_offset(pc), pc + go.load_bias, cookie=number)
            for number, (_, pc) in enumerate(self._probed())
        ]
        probes += [
            Uprobe("on_annotation", go.file_offset(pc), pc + go.load_bias, cookie=number)
            for number, (_, pc) in enumerate(self._annotations, len(probes))
        ]
        self._program.attach_uprobes(
            go.binary.elf.fd,
            go.target.pid,
            probes,
            anchor=(go.file_offset(go.sites.anchor_pc), go.sites.anchor_pc + go.load_bias),
            group=0,
        )
        self._program.attach_tracepoint("on_switch", "sched_switch")
        self._program.attach_tracepoint("on_waking", "sched_waking")

    def record(self, *, is_on: bool) -> None:
        """Begin or end to record events."""
        self._program.maps["targets"].set_struct(0, {**self._fields, "active": int(is_on)})

    def detach(self, *, for_a_while: bool = False) -> None:
        """Detach all probes; what was recorded stays readable."""
        self._program.detach_tracepoints()
        self._program.detach_uprobes([0], for_a_while=for_a_while)

    def switch_runs(self) -> Runs:
        """What recording context switches cost the process so far, once it is loaded."""
        return self.runs(_SWITCHES)

    def wake_runs(self) -> Runs:
        """What recording wakes of threads cost so far, of the process or of those who woke them."""
        return self.runs(_WAKES)

    def stacks(self) -> dict[int, tuple[int, ...]]:
        """All stacks by key: runtime addresses, innermost first, all but perhaps one that of a
        return."""
        by_key: dict[int, tuple[int, ...]] = {}
        for keys, stacks in self._program.maps["stacks"].batches():
            rows = zip(keys.tolist(), stacks["depth"].tolist(), stacks["pcs"], strict=True)
            by_key |= {key: tuple(pcs[:depth].tolist()) for key, depth, pcs in rows}
        return by_key

    def label_sets(self) -> dict[int, tuple[Any, ...]]:
        """The sets of labels by key."""
        if not self._has_labels:
            return {}
        return dict(labels.label_sets(*self._program.maps["label_sets"].rows()))

    def files(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The files that goroutines waited for: keys, and rows of struct polled_file."""
        return self._program.maps["files"].rows()

    def c_stacks(self) -> CStacks:
        """Unwinds stacks of C code, once it is loaded, and `has_c`; to be closed."""
        return CStacks(self._program, self._go)

    def losses(self) -> Sequence[Loss]:
        """What it lost so far, but for events that were overwritten."""
        return losses(self._program.maps["losses"].numbers())

    def close(self) -> None:
        """Detach the probes and free the maps."""
        self.rings = NO_RINGS  # they have views into the maps
        self._program.close()

    def _probed(self) -> list[tuple[ScheduleMoment, int]]:
        left_out = () if self._runs else (ScheduleMoment.RUN,)
        return [(site.moment, site.pc) for site in self._sites.sites if site.moment not in left_out]


def _wait_fields(go: GoTarget) -> dict[str, Any]:
    """The fields of struct wait_layout."""
    layout = go.binary.layout
    parks = [park.return_pc + go.load_bias for park in go.sites.parks if park.is_semaphore]
    sequence = "fdseq" if layout.has("pollDesc", "fdseq") else "rseq"
    return {
        "semaphore_parks": parks[:_SEMAPHORE_PARKS] if go.sites.semaphores else [],
        "wait_lock_offset": layout.offset("m", "waitlock"),
        "file_reason": layout.wait_reasons["IOWait"],
        "read_g_offset": layout.offset("pollDesc", "rg"),
        "write_g_offset": layout.offset("pollDesc", "wg"),
        "fd_offset": layout.offset("pollDesc", "fd"),
        "sequence_offset": layout.offset("pollDesc", sequence),
        "self_offset": layout.offset("pollDesc", "self"),
    }


def _traced_fields(go: GoTarget, tls_offset: int) -> dict[str, Any]:
    """The fields of struct traced. Raises TargetGone."""
    layout = go.binary.layout

    def offset(struct: str, field: str) -> int:
        return layout.offset(struct, field) if layout.has(struct, field) else 0

    has_coroutines = "coro" in layout.structs and layout.has("g", "coroarg")
    starts = go.binary.functions_named(_OF_COROUTINES)
    device, inode = go.target.pid_namespace()
    return {
        # Else the first moment or context switch tells it.
        "tgid": go.target.pid if sees_whole_machine() else 0,
        "own_tgid": go.target.innermost_pid(),
        "namespace_device": device,
        "namespace_inode": inode,
        "text_start": go.binary.text_start + go.load_bias,
        "text_bytes": go.binary.text_end - go.binary.text_start,
        "tls_offset": tls_offset,
        "g0_offset": offset("m", "g0"),
        "goid_offset": offset("g", "goid"),
        "sequence_offset": offset("g", "trackingSeq"),
        "start_pc_offset": offset("g", "startpc"),
        "coro_offset": offset("g", "coroarg") if has_coroutines else 0,
        "coro_exit_offset": offset("g", "coroexit"),
        "coro_g_offset": offset("coro", "gp") if has_coroutines else 0,
        "coro_start": next((at.entry + go.load_bias for at in starts), 0),
        "pc_offset": offset("g", "sched.pc"),
        "p_offset": offset("m", "p"),
        "old_p_offset": offset("m", "oldp"),
        "tick_offset": offset("m", "syscalltick"),
        "p_id_offset": offset("p", "id"),
        "waits": _wait_fields(go),
        "syscall_pc_offset": offset("g", "syscallpc"),
        "syscall_bp_offset": offset("g", "syscallbp"),
    }
