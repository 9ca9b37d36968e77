"""The block, mutex and wakers profiles, and the profile of open waits at the end."""

from __future__ import annotations

from collections.abc import Sequence

from ebpfprof.profile.evidence import is_unknown_release
from ebpfprof.profile.kind import Endpoint, Loader, Metric, ProfileKind, Table, Values
from ebpfprof.profile.model import Sample, ValueType
from ebpfprof.profile.wakers import are_pairs
from ebpfprof.settings.setting import Setting
from ebpfprof.settings.values import NumberValue, SwitchValue

_LOADER = Loader("ebpfprof.profilers.waits.loader", needs_probes=True, is_windowed=True)
_COVERAGE = "ebpfprof.profilers.waits.coverage:WaitsCoverage"
_METRIC = Metric(
    "ebpfprof_delay_seconds",
    "Time that goroutines waited (block), or made others wait (mutex).",
    is_shared=True,
)
# As in Go's own block and mutex profiles (runtime/pprof/pprof.go, printCountCycleProfile).
_DELAYS = (ValueType("contentions", "count"), ValueType("delay", "nanoseconds"))
# Go's name for releases of runtime locks whose stack it lost (runtime/mprof.go, from Go 1.22 on).
_LOST_RELEASES = "runtime._LostContendedRuntimeLock"


def _are_releases(samples: Sequence[Sample]) -> bool:
    """Whether each leaf is an unlocking function of sync or the runtime, or stands for one."""
    return all(map(_is_release, samples))


def _is_release(sample: Sample) -> bool:
    frames = sample.locations[0].frames if sample.locations else ()
    if not frames:
        return False
    if frames[0].function == _LOST_RELEASES or is_unknown_release(sample):
        return True
    package, _, name = frames[0].function.partition(".")
    return package in ("sync", "internal/sync", "runtime") and "unlock" in name.lower()


def _block_sampling(values: Values) -> str:
    if values["one_in_eight"]:
        return "one wait in eight"
    rate_ns = values["block_rate_ns"]
    return f"sampled at a rate of {rate_ns} ns" if rate_ns > 1 else "every event"


def _mutex_sampling(values: Values) -> str:
    if values["one_in_eight"]:
        return "releases behind one wait in eight"
    fraction = values["mutex_fraction"]
    return f"one release in {fraction}, scaled" if fraction > 1 else "every event"


BLOCK = ProfileKind(
    name="block",
    title="block",
    subject="Waits",
    summary="where goroutines waited, and how long",
    heading="Waits of {process} in {length}",
    events="waits",
    nothing="no goroutine waited and was woken",
    headline="of waiting:",
    sample_types=_DELAYS,
    table=Table("operations", "Delay", "Count", ("Called from", "From")),
    loader=_LOADER,
    key="b",
    endpoint=Endpoint(
        "block",
        "Stack traces that led to blocking on synchronization primitives",
        delta="delta_block",
        text=("--- contention:", "cycles/second=1000000000"),
    ),
    metric=_METRIC,
    options=(
        Setting(
            "block_rate_ns",
            NumberValue(1, (1 << 47) - 1),
            1,
            "Sample as Go's SetBlockProfileRate does: all waits of NS nanoseconds or more, shorter "
            "ones in proportion. 1: record every wait.",
            flags="--block-rate",
            metavar="NS",
            excludes="max_overhead",
        ),
        Setting(
            "earlier_waits",
            SwitchValue(),
            False,
            "If every wait is recorded, also count waits that began before the recording, with "
            "their time in it. Estimated delays always include them.",
            flags="--earlier-waits",
        ),
        Setting(
            "one_in_eight",
            SwitchValue(),
            False,
            "Record one wait in eight all the time, those that Go's scheduler itself measures, "
            "without a limit on the overhead. Other waits cost nothing.",
            flags="--one-in-eight",
            excludes="max_overhead",
        ),
        Setting(
            "lengths",
            SwitchValue(),
            False,
            "Add the length of waits to the samples of the profile files, as a label: `go tool "
            "pprof -tagfocus=wait=10ms:` shows only waits of 10 ms or longer.",
            flags="--lengths",
        ),
    ),
    sampling=_block_sampling,
    coverage=_COVERAGE,
    is_agent_default=True,
    has_lengths=True,
)
MUTEX = ProfileKind(
    name="mutex",
    title="mutex",
    subject="Releases of contended locks",
    summary="which code made goroutines wait for locks",
    heading="Releases of contended locks of {process} in {length}",
    events="releases",
    nothing="no goroutine waited for a lock",
    headline="of the waiting for locks: until",
    sample_types=_DELAYS,
    table=Table("operations", "Delay", "Count", ("Released by", "By")),
    loader=_LOADER,
    key="u",
    endpoint=Endpoint(
        "mutex",
        "Stack traces of holders of contended mutexes",
        delta="delta_mutex",
        # Values are scaled already.
        text=("--- mutex:", "cycles/second=1000000000", "sampling period=1"),
    ),
    metric=_METRIC,
    options=(
        Setting(
            "mutex_fraction",
            NumberValue(1),
            1,
            "Sample as Go's SetMutexProfileFraction does: one release in N, scaled up. 1: record "
            "every release.",
            flags="--mutex-fraction",
            metavar="N",
        ),
        Setting(
            "by_lock",
            SwitchValue(),
            False,
            "Also show the locks: their names, how long they were held, which code released them "
            "and which waited for them.",
            flags="--by-lock",
        ),
        Setting(
            "lock_labels",
            SwitchValue(),
            False,
            "Add the lock to each sample of the profile files, as a label.",
            flags="--lock-labels",
        ),
        Setting(
            "runtime_locks",
            SwitchValue(),
            False,
            "Include the Go runtime's own locks in the mutex profile (Go 1.25 or newer).",
            flags="--runtime-locks",
        ),
    ),
    sampling=_mutex_sampling,
    is_of=_are_releases,
    coverage=_COVERAGE,
    is_agent_default=True,
    has_lengths=True,
)
WAKERS = ProfileKind(
    name="wakers",
    title="wakers",
    subject="Waits and wakers",
    summary="what goroutines waited for: which code woke which, and after how long",
    heading="Waits of {process} in {length}, and what ended them",
    events="waits",
    nothing="no goroutine waited and was woken",
    headline="of waiting:",
    sample_types=_DELAYS,
    table=Table("operations", "Delay", "Count", ("Who waited", "Waited"), ("Woken by", "By")),
    loader=_LOADER,
    key="y",
    endpoint=Endpoint(
        "wakers",
        "Stack traces of goroutines that waited, each with the one that woke it",
        delta="delta_wakers",
    ),
    options=(
        Setting(
            "wakers",
            SwitchValue(),
            False,
            "Also record who woke whom: for each stack that waited, the stacks that woke it, how "
            "often and after how long. The same as adding wakers to --profile.",
            flags="--wakers",
        ),
    ),
    sampling=_block_sampling,
    coverage=_COVERAGE,
    added_by="wakers",
    is_of=are_pairs,
    is_default=False,
    has_lengths=True,
)
RUN_QUEUE = ProfileKind(
    name="runqueue",
    title="run queue",
    subject="Time in the run queue",
    summary="how long goroutines that were woken waited for a CPU",
    heading="Time in the run queue after waits of {process} in {length}",
    events="waits",
    nothing="no goroutine waited and was woken",
    headline="of waiting for a CPU:",
    sample_types=(ValueType("wakes", "count"), ValueType("runnable", "nanoseconds")),
    table=Table("operations", "Runnable", "Wakes", ("Waited before", "Before")),
    loader=_LOADER,
    endpoint=Endpoint(
        "runqueue",
        "Stack traces of goroutines that were woken and waited for a CPU",
        delta="delta_runqueue",
    ),
    sampling=lambda _: "after one wait in eight",
    coverage=_COVERAGE,
    is_default=False,
    is_of_tracked_waits=True,
    has_lengths=True,
)
OPEN = ProfileKind(
    name="open",
    title="open",
    subject="Waits in progress",
    summary="waits in progress at the end",
    heading="Waits in progress of {process} after {length}",
    events="open waits",
    nothing="no goroutine waits",
    headline="of the time waited so far:",
    sample_types=(ValueType("goroutines", "count"), ValueType("waiting", "nanoseconds")),
    table=Table("operations", "Waiting", "Goroutines", ("Called from", "From")),
    loader=_LOADER,
    options=(
        Setting(
            "open_waits",
            SwitchValue(),
            False,
            "Also show the waits in progress at the end, and write a file of them.",
            flags="--open",
        ),
    ),
    sampling=lambda _: "every goroutine",
    enabled_by="open_waits",
    is_moment=True,
)
