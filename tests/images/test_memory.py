"""Memory, allocations, threads and timers of the images, beside what Go itself said of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict

from ebpfprof.goruntime.goroutines.frames import StackFrames
from ebpfprof.goruntime.goroutines.states import LOCK_WORDS
from tests.images import readers
from tests.images.facts import MAIN, facts
from tests.images.image import image
from tests.images.versions import every_version

HOUR_NS = 3600 * 10**9
NAMES = {
    **{"HeapAlloc": "allocated", "HeapIdle": "idle", "HeapInuse": "heap_in_use"},
    **{"HeapReleased": "released", "HeapObjects": "objects", "TotalAlloc": "total_allocated"},
    **{"Mallocs": "mallocs", "Frees": "frees", "Sys": "mapped", "HeapSys": "heap_mapped"},
    **{"StackInuse": "stacks_in_use", "StackSys": "stacks_mapped"},
    **{"MSpanInuse": "spans_in_use", "MSpanSys": "spans_mapped"},
    **{"MCacheInuse": "caches_in_use", "MCacheSys": "caches_mapped"},
    **{"BuckHashSys": "profile_buckets", "GCSys": "collector_mapped", "OtherSys": "other_mapped"},
    **{"NumGC": "cycles", "NumForcedGC": "forced", "PauseTotalNs": "paused_ns"},
    **{"LastGC": "last_unix_ns"},
}
"""Those of runtime.MemStats, and ours."""
SINCE = {"TotalAlloc": 16384, "HeapAlloc": 16384, "Mallocs": 64, "HeapObjects": 64}
"""How much the program allocated after it read them, to write and to wait for its input."""
STACK_CACHE_BYTES = 128 << 10
OF_STACKS = ("HeapSys", "HeapIdle", "StackInuse", "StackSys")


@every_version
def test_statistics_are_gos_own(version: str) -> None:
    with image(version).opened() as go:
        found = readers.memory(go).statistics
    assert found.is_settled
    ours = {**asdict(found), **asdict(found.collector)}
    ours |= {"allocated": found.allocated, "objects": found.objects}
    for name, own in NAMES.items():
        go_facts = facts(version).number(f"memory {name}")
        # Before Go reports them, it empties the processors' caches of stacks.
        low = go_facts - (STACK_CACHE_BYTES if name in OF_STACKS else 0)
        high = go_facts + SINCE.get(name, STACK_CACHE_BYTES if name in OF_STACKS else 0)
        assert low <= ours[own] <= high, name
    assert (found.collector.percent, found.collector.goal, found.collector.limit) == (
        -1,
        None,
        None,
    )


@every_version
def test_objects_have_their_sizes_and_types(version: str) -> None:
    with image(version).opened() as go:
        found, live = readers.memory(go), readers.live_memory(go)
    of_size = {size_class.size: size_class for size_class in found.statistics.classes}
    assert of_size[16].objects >= 1000  # main.node
    assert of_size[96].objects >= 100  # main.record
    assert [each.size for each in found.large[:3]] == [1179648, 1048576, 1048576]
    assert live.collections == facts(version).number("memory NumGC")
    assert live.sizes[16] >= 16 * 1000
    assert live.in_use <= found.statistics.allocated
    if int(version.split(".")[1]) < 22:  # the runtime keeps no types of objects
        assert found.types is None
        return
    names = {each.name: each for each in found.types or ()}
    assert names["*main.record"].used == 1152  # of main.kept
    assert {each.type for each in found.large} >= {"*main.node"}  # of main.index
    assert found.typed_share == 1.0


@every_version
def test_allocations_are_gos_own(version: str) -> None:
    with image(version).opened() as go:
        found = readers.allocations(go)
        frames = StackFrames(go)
        named = [{frame.function for frame in frames.of(stack)} for stack in found.stacks]
    ours = Counter(
        (allocs, allocs * size, frees, frees * size)
        for size, allocs, frees in zip(
            found.sizes.tolist(), found.allocs.tolist(), found.frees.tolist(), strict=True
        )
        if allocs
    )
    own = Counter(facts(version).numbers["allocations"])
    assert ours == own
    assert found.rate == 1
    assert not found.corrupt
    counts = dict.fromkeys(("main.makeNodes", "main.makeRecords", "main.makeGarbage"), 0)
    freed = dict(counts)
    for names, allocs, frees in zip(
        named, found.allocs.tolist(), found.frees.tolist(), strict=True
    ):
        for name in counts.keys() & names:
            counts[name] += allocs
            freed[name] += frees
    assert counts["main.makeNodes"] == 1000
    assert counts["main.makeRecords"] >= 100
    assert freed == {"main.makeNodes": 0, "main.makeRecords": freed["main.makeRecords"]} | {
        "main.makeGarbage": 100
    }


@every_version
def test_threads_are_gos_own(version: str) -> None:
    go_facts = facts(version)
    with image(version).opened() as go:
        found = readers.threads(go)
    kernels = {name.split("/")[1] for name in image(version).files if name.startswith("task/")}
    assert len(kernels) == len(found.threads)
    assert found.others == 0
    # Some may have come since, to run others while main waits for its input.
    assert len(found.threads) >= go_facts.number("threads")
    by_goid = {thread.goroutine.goid: thread for thread in found.threads if thread.goroutine}
    assert by_goid.keys() == {
        *(MAIN, go_facts.goid("system call"), go_facts.goid("locked to its thread")),
    }
    assert (by_goid[go_facts.goid("system call")].state, by_goid[MAIN].state) == (
        "syscall",
        "syscall",
    )
    assert by_goid[go_facts.goid("system call")].call == by_goid[MAIN].call == "read"
    assert by_goid[go_facts.goid("locked to its thread")].state == "locked"
    creations = [thread.creation for thread in found.threads]
    assert any(creations)
    assert not any(0 in creation for creation in creations)
    assert "runtime.sysmon" in {each.function for each in found.threads}


@every_version
def test_timers_are_counted_and_lead_to_who_waits(version: str) -> None:
    go_facts = facts(version)
    with image(version).opened() as go:
        assert readers.timers(go) == 7
        causes = readers.causes(go)
        now_ns = image(version).moment_ns
    timer, ticker = causes[go_facts.goid("timer")], causes[go_facts.goid("ticker")]
    for cause, hours in ((timer, 2), (ticker, 3)):
        assert 0 < now_ns + hours * HOUR_NS - cause.ends_ns < 60 * 10**9
    assert (timer.period_ns, ticker.period_ns) == (0, 3 * HOUR_NS)
    assert causes[go_facts.goid("chan send")].sends
    assert not causes[go_facts.goid("chan receive")].sends
    assert not any(cause.signals for cause in causes.values())


@every_version
def test_samples_find_each_goroutine_in_its_state(version: str) -> None:
    with image(version).opened() as go:
        totals = readers.sampled(go)
    go_facts = Counter(
        each.state.split(", ")[0]
        for goid, each in facts(version).goroutines.items()
        if goid != MAIN
    )
    found = Counter[str]()
    for state, total in totals.states.items():
        found[state.word] += total.hits
    for word, count in go_facts.items():
        main = word == "syscall"  # where main waits by now
        assert found[word] == readers.LOOKS * (count + main), word


@every_version
def test_goroutines_are_counted_by_groups_of_states(version: str) -> None:
    with image(version).opened() as go:
        found = readers.state_counts(go)
    words = Counter(
        each.state.split(", ")[0]
        for goid, each in facts(version).goroutines.items()
        if goid != MAIN
    )
    words["syscall"] += 1  # main waits for its input by now
    channels = [word for word in words if word.startswith(("chan", "select"))]
    locks = [word for word in words if word in LOCK_WORDS]
    assert len(channels) >= 3
    assert locks
    assert found["channel"] == sum(words[word] for word in channels)
    assert found["lock"] == sum(words[word] for word in locks)
    assert (found["syscall"], found["network"]) == (words["syscall"], words["IO wait"])
    assert sum(found.values()) == words.total()


@every_version
def test_waits_of_the_block_profile(version: str) -> None:
    go_facts = facts(version)
    with image(version).opened() as go:
        found = {wait.goid: wait for wait in readers.waits(go)}
    names = {go_facts.names[goid] for goid in found}
    # Neither nil channels nor sleeps, files and system calls are in Go's block profile.
    silent = {"nil channel", "select forever", "sleep", "IO wait", "system call"}
    assert names == set(go_facts.names.values()) - silent
    sema = {go_facts.names[goid]: each.sema for goid, each in found.items() if each.sema}
    assert sema["mutex"] == sema["mutex too"]
    assert 0 < sema["mutex"] - go_facts.number("lock shared") < 8
    labels = {label.key: label.value for label in found[go_facts.goid("child")].labels or ()}
    assert labels == {"request": "get /orders", "user": "Zoë"}
