"""Gives up the capabilities that a command does not need, before it does its work."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Set as AbstractSet

from ebpfprof.kernel import uprobe_links
from ebpfprof.privileges import capabilities
from ebpfprof.privileges.capabilities import NUMBERS, effective
from ebpfprof.privileges.checks import LOOKING, RECORDING, TO_RECORD, WRITING
from ebpfprof.profilers.options import Options
from ebpfprof.recording.loaded_profilers import rights_for
from ebpfprof.system.lean_start import do_everywhere


def give_up_before_recording(
    options: Options,
    *,
    writes: bool = False,
    has_child: bool = False,
    pids: Collection[int] = (),
) -> None:
    """Keep the capabilities for recording, and for writing files or signalling a child if asked.

    Call it before other threads start: they would keep their capabilities. Raises OSError.
    """
    _give_up(needed_to_record(options, writes=writes, has_child=has_child, pids=pids))


def needed_to_record(
    options: Options, *, writes: bool, has_child: bool, pids: Collection[int]
) -> AbstractSet[str]:
    """The capabilities that give_up_before_recording keeps.

    CAP_SYS_ADMIN is among them only where the kernel requires it for these options, where it
    replaces capabilities that we lack, or where links can't reach one of the processes `pids`.
    """
    keep = RECORDING | (WRITING if writes else set()) | ({"CAP_KILL"} if has_child else set())
    needs_events = not all(map(uprobe_links.can_reach, pids))
    if _stands_for_others() or any(rights_for(options)) or needs_events:
        keep |= {"CAP_SYS_ADMIN"}
    return keep


def give_up_probing(options: Options) -> None:
    """Keep the capabilities that are useful after all probes are attached. Raises OSError."""
    _give_up(needed_after_probing(options))


def needed_after_probing(options: Options) -> AbstractSet[str]:
    """The capabilities that give_up_probing keeps."""
    keep = RECORDING | WRITING
    needs_admin = _stands_for_others() or rights_for(options).to_record
    return keep | {"CAP_SYS_ADMIN"} if needs_admin else keep


def give_up_recording_rights() -> None:
    """Keep the capabilities for looking at processes without recording. Raises OSError."""
    _give_up(LOOKING)


def _stands_for_others() -> bool:
    """Whether CAP_SYS_ADMIN replaces capabilities that we lack, such as CAP_BPF."""
    held = effective()
    return any(NUMBERS[name] not in held for name in TO_RECORD)


def _give_up(keep: Collection[str]) -> None:
    """Keep these, here and in the process that starts children."""
    do_everywhere(capabilities.give_up, sorted(keep))
