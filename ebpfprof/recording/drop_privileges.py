"""Gives up the rights that a verb does not need, before it does what it is for."""

from __future__ import annotations

from ebpfprof.privileges.capabilities import NUMBERS, effective, give_up
from ebpfprof.privileges.checks import LOOKING, RECORDING, TO_RECORD, WRITING
from ebpfprof.profilers.options import Options
from ebpfprof.recording.profiler_set import rights_for


def give_up_before_recording(
    options: Options, *, writes: bool = False, has_child: bool = False
) -> None:
    """Keep what recording takes, and writing files or signals to a child where that is said.

    To be called before other threads are there, which would keep what they have. CAP_SYS_ADMIN
    stays only where the kernel wants it for what is recorded, or it stands for what is not there.
    Raises OSError.
    """
    keep = RECORDING | (WRITING if writes else set()) | ({"CAP_KILL"} if has_child else set())
    if _stands_for_others() or any(rights_for(options)):
        keep |= {"CAP_SYS_ADMIN"}
    give_up(keep)


def give_up_probing(options: Options) -> None:
    """Keep what is of use once all probes are in. Raises OSError."""
    keep = RECORDING | WRITING
    needs_admin = _stands_for_others() or rights_for(options).to_record
    give_up(keep | {"CAP_SYS_ADMIN"} if needs_admin else keep)


def give_up_before_looking() -> None:
    """Keep what it takes to look at processes: nothing is recorded. Raises OSError."""
    give_up(LOOKING)


def _stands_for_others() -> bool:
    """Whether CAP_SYS_ADMIN is there in place of rights of its own."""
    held = effective()
    return any(NUMBERS[name] not in held for name in TO_RECORD)
