"""The layout of a target for the BPF programs: the fields of bpf/probes/target.h and source.h."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ebpfprof.goruntime.goroutines import labels
from ebpfprof.kernel import c_facts

if TYPE_CHECKING:  # the session imports them while BCC compiles
    from collections.abc import Sequence

    from ebpfprof.goruntime.process import GoTarget
    from symbolizer import RuntimeLayout
    from symbolizer.x86.values import Source

_WORD_BYTES = 8
_BOUNDS_BYTES = 16  # of a goroutine's stack: where a runtime.g begins

# The runtime.waitReason with which runtime.semacquire1 parks (runtime/sema.go).
_SEMAPHORE_REASONS = (
    "Semacquire",
    "SyncMutexLock",
    "SyncRWMutexRLock",
    "SyncRWMutexLock",
    "SyncWaitGroupWait",
    "SynctestWaitGroupWait",
)


_ORIGINS: Final = c_facts.enum("probes/source.h", "origin")


def source_fields(source: Source) -> dict[str, int]:
    """The fields of struct source: where a value is at a probe."""
    name = source.register if source.register[1:].isdigit() else source.register[1:]
    origin = _ORIGINS[name.upper() or "NONE"]
    return {"of": origin, "reads": int(source.reads), "offset": source.offset}


def target_fields(go: GoTarget, *, has_labels: bool) -> dict[str, Any]:
    """The fields of struct target that don't change during a recording, with runtime addresses.

    `has_labels`: the labels of goroutines are recorded. They need not be read in a program that
    can't set any.
    """
    layout = go.binary.layout
    fields: dict[str, Any] = {
        "sched_bp_offset": layout.offset("g", "sched.bp"),
        "status_offset": layout.offset("g", "atomicstatus"),
        "m_offset": layout.offset("g", "m"),
        "curg_offset": layout.offset("m", "curg"),
        "wait_reason_offset": layout.offset("g", "waitreason"),
        "semaphore_reasons": bits_of_reasons(layout, _SEMAPHORE_REASONS),
        "callback": _callback_fields(go),
        **labels.target_fields(layout),
    }
    if not (has_labels and go.sites.sets_labels):
        fields["labels_offset"] = 0
    label_end = fields["labels_offset"] and fields["labels_offset"] + _WORD_BYTES
    fields["g_bytes"] = label_end or _BOUNDS_BYTES
    if go.sites.semaphores:
        fields["sema_offset"] = go.sites.semaphores.address_offset
        fields["lock_callers"] = [pc + go.load_bias for pc in go.sites.semaphores.lock_callers]
    return fields


def bits_of_reasons(layout: RuntimeLayout, names: Sequence[str]) -> int:
    """A bit for each of these runtime.waitReason that this version of Go has."""
    known = layout.wait_reasons
    return sum(1 << known[name] for name in names if name in known)


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
