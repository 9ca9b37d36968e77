"""Gives up the rights that a verb does not need, before it does what it is for."""

from __future__ import annotations

from ebpfprof.kernel import perf_events, uprobe_links
from ebpfprof.privileges.capabilities import NUMBERS, effective, give_up, set_aside
from ebpfprof.privileges.checks import LOOKING, RECORDING, TO_RECORD, WRITING
from ebpfprof.profilers.options import Options


def give_up_before_recording(
    options: Options, *, writes: bool = False, has_child: bool = False
) -> None:
    """Keep what recording takes, and writing files or signals to a child where that is said.

    To be called before other threads are there, which would keep what they have. CAP_SYS_ADMIN
    stays only where the kernel wants it for what is recorded, or it stands for what is not there.
    Raises OSError.
    """
    keep = RECORDING | (WRITING if writes else set()) | ({"CAP_KILL"} if has_child else set())
    if _takes_admin(options) or (options.waiting and not uprobe_links.is_offered()):
        keep |= {"CAP_SYS_ADMIN"}
    give_up(keep)


def give_up_probing(options: Options) -> None:
    """Keep what is of use once all probes are in. Raises OSError."""
    keep = RECORDING | WRITING
    give_up(keep | {"CAP_SYS_ADMIN"} if _takes_admin(options) else keep)


def give_up_before_looking() -> None:
    """Keep what it takes to look at processes: nothing is recorded. Raises OSError."""
    give_up(LOOKING)


def _takes_admin(options: Options) -> bool:
    """Whether CAP_SYS_ADMIN is of use all the time."""
    if _stands_for_others():
        return True
    if "cpu" not in options.kinds:
        return False
    # Processors may come while it is recorded, and each has an event of its own.
    with set_aside("CAP_SYS_ADMIN"):
        return not perf_events.may_open_events()


def _stands_for_others() -> bool:
    held = effective()
    return any(NUMBERS[name] not in held for name in TO_RECORD)
