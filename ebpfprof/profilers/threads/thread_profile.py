"""Makes the profiles of threads of what was read."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ebpfprof.profile.model import Sample
from ebpfprof.profilers.report_builder import WholeSums
from ebpfprof.profilers.threads.kind import THREADCREATE, THREADS
from ebpfprof.profilers.threads.thread_stacks import samples

if TYPE_CHECKING:
    from ebpfprof.goruntime.goroutines.threads import AllThreads
    from ebpfprof.profilers.report_builder import ReportBuilder
    from ebpfprof.profilers.threads.thread_stacks import Key, ThreadStacks

GOS_OWN: Final = (
    "Go notes who made a thread only where a goroutine did, and its scheduler makes nearly all: "
    "the threads profile tells what holds them"
)


@dataclass(slots=True, kw_only=True)
class ThreadSums(WholeSums):
    """The threads of a process at a moment, None if they could not be read; and new threads."""

    threads: AllThreads | None
    charged: Counter[Key] = field(default_factory=Counter)


def report(sums: ThreadSums, stacks: ThreadStacks, builder: ReportBuilder) -> None:
    """Add a profile of each chosen kind; of threads that were not read it has no samples."""
    now: list[Sample] = []
    created: list[Sample] = []
    if sums.threads is not None:
        try:
            now = samples(stacks.counted(sums.threads), sums.charged)
            made = stacks.created(each.creation for each in sums.threads.threads)
            created = [Sample(stack, (count,)) for stack, count in made.items()]
        except Exception as error:  # any error: the other profiles matter more
            builder.fail(error)
    recording = builder.recording
    new = sum(sums.charged.values())
    remark = f"{new} new threads while it recorded, charged to what held threads then: new_threads"
    for kind, found, remarks in (
        (THREADS, now, [remark] if new else []),
        (THREADCREATE, created, [GOS_OWN]),
    ):
        if kind.name not in recording.kinds:
            continue
        account = builder.account(kind, f"{kind.title} profile", remarks)
        profile = kind.make_profile(
            found,
            recording.go.mappings if recording.go else (),
            time_ns=recording.started_unix_ns,
            duration_ns=account.length_ns,
        )
        builder.add(profile, account)
