"""Makes the profiles of threads of what was read."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from ebpfprof.profile.model import Sample
from ebpfprof.profilers.threads.kind import THREADCREATE, THREADS
from ebpfprof.profilers.threads.samples import samples

if TYPE_CHECKING:
    from ebpfprof.goruntime.goroutines.threads import AllThreads
    from ebpfprof.profilers.report_builder import ReportBuilder
    from ebpfprof.profilers.threads.samples import Key, ThreadStacks

GOS_OWN: Final = (
    "Go notes who made a thread only where a goroutine did, and its scheduler makes nearly all: "
    "the threads profile tells what holds them"
)


def report(
    found: AllThreads | None, charged: Counter[Key], stacks: ThreadStacks, builder: ReportBuilder
) -> None:
    """Add a profile of each chosen kind; without `found` it has no samples."""
    now: list[Sample] = []
    created: list[Sample] = []
    if found is not None:
        try:
            now = samples(stacks.counted(found), charged)
            made = stacks.created(each.creation for each in found.threads)
            created = [Sample(stack, (count,)) for stack, count in made.items()]
        except Exception as error:  # any error: the other profiles matter more
            builder.fail(error)
    recording = builder.recording
    new = sum(charged.values())
    told = f"{new} new threads while it recorded, charged to what held threads then: new_threads"
    for kind, those, remarks in (
        (THREADS, now, [told] if new else []),
        (THREADCREATE, created, [GOS_OWN]),
    ):
        if kind.name not in recording.kinds:
            continue
        account = builder.account(kind, f"{kind.title} profile", remarks)
        profile = kind.make_profile(
            those,
            recording.go.mappings if recording.go else (),
            time_ns=recording.started_unix_ns,
            duration_ns=account.length_ns,
        )
        builder.add(profile, account)
