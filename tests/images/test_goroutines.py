"""Goroutines of the images, beside what Go itself said of them."""

from __future__ import annotations

import re

import pytest

from ebpfprof.goruntime.waits.dump import dump
from ebpfprof.profile.deadlocks import circles
from ebpfprof.profile.goroutines import DumpedGoroutine
from ebpfprof.profile.waiting_for import NOTHING, Sureness
from tests.builds import in_full
from tests.images import readers
from tests.images.facts import MAIN, Facts, facts
from tests.images.image import VERSIONS, image
from tests.images.versions import every_version

HOUR_NS = 3600 * 10**9
MINUTE_NS = 60 * 10**9
TYPES = re.compile(r"\[.*\]$")
"""Of a generic function, which tracebacks do not show."""


def dumped(version: str) -> dict[int, DumpedGoroutine]:
    with image(version).opened() as go:
        return {goroutine.goid: goroutine for goroutine in readers.goroutines(go).goroutines}


def named(version: str) -> dict[str, DumpedGoroutine]:
    """The goroutines by the program's names of them."""
    found, names = dumped(version), facts(version).names
    return {name: found[goid] for goid, name in names.items()}


@every_version
def test_the_traceback_is_gos_own(version: str) -> None:
    with image(version).opened() as go:
        text = readers.traceback(go)
    found = {int(block.split(" ", 2)[1]): block for block in text.strip().split("\n\n")}
    own = {goid: each.text for goid, each in facts(version).goroutines.items()}
    # It wrote that, and now waits for its input.
    assert own.pop(MAIN).startswith(f"goroutine {MAIN} [running]:")
    assert found.pop(MAIN).startswith(f"goroutine {MAIN} [syscall]:")
    assert found == own


@every_version
def test_a_dump_has_gos_goroutines_with_their_states_and_calls(version: str) -> None:
    found, go_facts = dumped(version), facts(version)
    assert len(found) == go_facts.number("goroutines")
    assert found.keys() == go_facts.goroutines.keys()
    for goid, own in go_facts.goroutines.items():
        if goid == MAIN:
            continue
        each = found[goid]
        state, *more = own.state.split(", ")
        assert each.state == state, goid
        assert each.is_locked == ("locked to thread" in more)
        calls = [(TYPES.sub("[...]", frame.function), frame.line) for frame in each.frames]
        # A traceback leaves out the runtime's frames, and the middle of a deep stack.
        first = [name for name, _ in calls].index(own.calls[0][0])
        count = min(len(own.calls), 50)
        assert len(calls[first:]) >= len(own.calls)
        assert calls[first : first + count] == list(own.calls[:count])


@every_version
def test_deep_stacks_are_whole(version: str) -> None:
    deep = named(version)["deep"]
    assert deep.is_whole
    assert sum(frame.function == "main.(*place).descend" for frame in deep.frames) == 401


@every_version
def test_labels_are_those_of_the_program(version: str) -> None:
    pairs = (("request", "get /orders"), ("user", "Zoë"))
    for name, each in named(version).items():
        has_labels = name in ("labelled", "child")
        own = tuple((label.key, label.value) for label in each.labels)
        assert own == (pairs if has_labels else ()), name


@every_version
def test_parents_are_known_since_go_1_21(version: str) -> None:
    found = named(version)
    is_told = VERSIONS.index(version) >= VERSIONS.index("1.21")
    assert found["child"].parent == (found["labelled"].goid if is_told else 0)
    assert found["mutex"].parent == (MAIN if is_told else 0)


def lock_of(go_facts: Facts, name: str) -> int:
    return go_facts.number(f"lock {name}")


@every_version
def test_locks_have_the_programs_addresses_and_states(version: str) -> None:
    found, go_facts = named(version), facts(version)
    waits = {
        "mutex": ("shared", "sync.Mutex", 2, 0),
        "mutex too": ("shared", "sync.Mutex", 2, 0),
        "global mutex": ("global", "sync.Mutex", 1, 0),
        "deadlock": ("second", "sync.Mutex", 1, 0),
        "deadlock too": ("first", "sync.Mutex", 1, 0),
        "waits to read": ("written", "sync.RWMutex", 0, 0),
        "waits to write": ("read", "sync.RWMutex", 0, 1),
        "behind a writer": ("read", "sync.RWMutex", 0, 1),
    }
    for name, (lock, kind, waiters, readers_of) in waits.items():
        own = found[name].waits_for.lock
        assert own is not None, name
        assert (own.address, own.type) == (lock_of(go_facts, lock), kind), name
        assert (own.waiters, own.readers) == (waiters, readers_of), name
        assert own.is_locked == (readers_of == 0), name
    group = found["wait group"].waits_for.lock
    assert group
    assert (group.type, group.waiters, group.counter, group.name) == (
        *("sync.WaitGroup", 1, 3, "main.all"),
    )
    condition = found["cond"].waits_for.lock
    assert condition
    assert (condition.type, condition.waiters) == ("sync.Cond", 1)
    own = found["global mutex"].waits_for.lock
    assert own
    assert own.name == "main.global"


@every_version
def test_holders_of_locks_are_found(version: str) -> None:
    found = named(version)
    holders = {
        **{"mutex": "holder", "mutex too": "holder", "waits to read": "writer"},
        **{"waits to write": "reader", "behind a writer": "reader"},
        **{"deadlock": "deadlock too", "deadlock too": "deadlock"},
    }
    for name, holder in holders.items():
        about = found[name].waits_for
        assert about.surely_hold == about.may_hold == (found[holder].goid,), name
    # Main locked it and is somewhere else now.
    assert found["global mutex"].waits_for.surely_hold == ()
    assert found["behind a writer"].waits_for.behind == found["waits to write"].goid


@pytest.mark.parametrize("version", [*in_full(VERSIONS[0]), VERSIONS[-1]])
def test_a_deadlock_is_certain_once_nothing_moved(version: str) -> None:
    with image(version).opened() as go:
        found = dump(go, apart_s=0.001)
    assert all(
        goroutine.stood_ns
        for goroutine in found.goroutines
        if goroutine.goid != MAIN and goroutine.wait
    )
    (circle,) = circles(found.goroutines)
    goids = {facts(version).goid(name) for name in ("deadlock", "deadlock too")}
    assert {each.goid for each in circle.goroutines} == goids
    assert circle.sureness is Sureness.CERTAIN


@every_version
def test_channels_have_the_programs_addresses_and_lengths(version: str) -> None:
    found, go_facts = named(version), facts(version)
    ((never, *_),), ((full, *_),) = (
        go_facts.numbers["channel never"],
        go_facts.numbers["channel full"],
    )
    lengths = {
        name: {
            (channel.address, channel.length, channel.capacity) for channel in found[name].channels
        }
        for name in ("chan receive", "chan send", "select", "nil channel", "select forever")
    }
    assert lengths == {
        "chan receive": {(never, 0, 0)},
        "chan send": {(full, 2, 2)},
        "select": {(never, 0, 0), (full, 2, 2)},
        "nil channel": set(),
        "select forever": set(),
    }
    stuck = {name for name, each in found.items() if each.can_never_go_on}
    assert stuck == {"nil channel", "select forever"}


@every_version
def test_files_calls_and_sleeps_are_known(version: str) -> None:
    found = named(version)
    waited = found["IO wait"].waits_for.file_wait
    assert waited
    assert (waited.file.kind, waited.is_write) == ("pipe", False)
    thread = found["system call"].waits_for.thread
    assert thread
    assert thread.call
    assert (thread.call.name, thread.call.file and thread.call.file.kind) == ("read", "pipe")
    ends_ns = found["sleep"].waits_for.wakes_in_ns
    assert ends_ns
    assert HOUR_NS - MINUTE_NS < ends_ns <= HOUR_NS
    for name in ("chan receive", "chan send", "select", "timer", "labelled"):
        assert found[name].waits_for == NOTHING, name


@every_version
def test_how_long_they_wait_is_known(version: str) -> None:
    # The runtime notes it at a collection, and the program asked for two.
    for name, each in named(version).items():
        assert 0 < each.waited_ns < MINUTE_NS, name


@every_version
def test_a_watch_counts_its_goroutines_and_samples(version: str) -> None:
    with image(version).opened() as go:
        found = readers.watched(go)
    assert found.goroutines == facts(version).number("goroutines")
    assert (found.samples, found.beyond) == (1, 0)  # the second was not due
    assert found.hanging == ()  # nothing waits for long


@every_version
def test_how_often_goroutines_ran_is_known(version: str) -> None:
    with image(version).opened() as go:
        count = readers.times_run(go) or 0
    # Each of them ran, and main polled until they waited.
    assert facts(version).number("goroutines") / 8 < count < 100_000
