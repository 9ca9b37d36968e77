"""Makes the profiles of threads of what was read."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ebpfprof.profile.model import Sample
from ebpfprof.profilers.goroutines.kinds import THREADCREATE, THREADS
from ebpfprof.profilers.goroutines.thread_stacks import samples

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ebpfprof.goruntime.goroutines.threads import AllThreads, ThreadScanner
    from ebpfprof.profile.kind import ProfileKind
    from ebpfprof.profilers.goroutines.thread_stacks import Key, ThreadStacks
    from ebpfprof.profilers.report_builder import ReportBuilder

GOS_OWN: Final = (
    "Go notes the creator of a thread only if it is a goroutine, and its scheduler creates nearly "
    "all threads: the threads profile shows what holds them"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadThreads:
    """The threads of a process at a moment, None if they could not be read; and new threads."""

    threads: AllThreads | None
    charged: Counter[Key] = field(default_factory=Counter)


def samples_now(kind: ProfileKind, scanner: ThreadScanner, stacks: ThreadStacks) -> list[Sample]:
    """The samples of one of these kinds, from the threads now.

    Raises TargetGone, UnreadableMemory or GoTableError.
    """
    if kind is THREADCREATE:  # Go's list alone has them
        return _created(stacks, (machine.creation for machine in scanner.machines()))
    return samples(stacks.counted(scanner.scan()), Counter())


def report(read: ReadThreads, stacks: ThreadStacks, builder: ReportBuilder) -> None:
    """Add a profile of each chosen kind; of threads that were not read it has no samples."""
    now: list[Sample] = []
    created: list[Sample] = []
    if read.threads is not None:
        try:
            now = samples(stacks.counted(read.threads), read.charged)
            created = _created(stacks, (thread.creation for thread in read.threads.threads))
        except Exception as error:  # any error: the other profiles matter more
            builder.fail(error)
    recording = builder.recording
    new = sum(read.charged.values())
    remark = (
        f"{new} new threads during the recording, charged to what held threads then: new_threads"
    )
    for kind, values, remarks in (
        (THREADS, now, [remark] if new else []),
        (THREADCREATE, created, [GOS_OWN]),
    ):
        if kind.name not in recording.kinds:
            continue
        account = builder.account(kind, f"{kind.title} profile", remarks)
        profile = kind.make_profile(
            values,
            recording.go.mappings if recording.go else (),
            time_ns=recording.started_unix_ns,
            duration_ns=account.length_ns,
        )
        builder.add(profile, account)


def _created(stacks: ThreadStacks, creations: Iterable[tuple[int, ...]]) -> list[Sample]:
    return [Sample(stack, (count,)) for stack, count in stacks.created(creations).items()]
