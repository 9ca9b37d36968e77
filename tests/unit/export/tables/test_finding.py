"""The sentence at the top: what stands out, and only that."""

from __future__ import annotations

import pytest

from ebpfprof.export.tables.finding import finding, summaries, summary
from ebpfprof.profile.evidence import UNKNOWN_RELEASE
from ebpfprof.profile.model import Frame, Location, Lock, Mapping, Profile, Sample
from ebpfprof.profilers.cpu.kind import CPU
from ebpfprof.profilers.goroutines.kinds import WALL
from ebpfprof.profilers.waits.kinds import BLOCK, MUTEX

MAIN = Mapping(0x400000, 0x500000, 0, "/srv/api", "")
S = 1_000_000_000
LOCK = ("sync.(*Mutex).Lock", "main.(*Cache).Get")
UNLOCK = ("sync.(*Mutex).Unlock", "main.(*Cache).Get")
RECEIVE = ("runtime.chanrecv1", "main.take")
SEND = ("runtime.chansend1", "main.send")


def sample(functions: tuple[str, ...], count: int, ns: int, variance: float = 0.0) -> Sample:
    locations = tuple(
        Location(0x400000 + n, MAIN, (Frame(function, f"/src/{n}.go", 10 * n),))
        for n, function in enumerate(functions, 1)
    )
    return Sample(locations, (count, ns), variance=variance)


def block(*samples: Sample, duration_ns: int = 10 * S) -> Profile:
    return BLOCK.make_profile(samples, [MAIN], time_ns=0, duration_ns=duration_ns)


def test_a_place_with_most_of_the_waiting_is_reported() -> None:
    found = finding(block(sample(LOCK, 5000, 15 * S), sample(SEND, 100, 5 * S)))
    assert found == ("75 % of waiting: Mutex.Lock in main.(*Cache).Get (2.go:20), mean 3.00 ms.")


def test_an_estimate_says_so() -> None:
    error_ns = 0.05 * 15 * S
    found = finding(block(sample(LOCK, 5000, 15 * S, error_ns**2), sample(SEND, 100, 5 * S)))
    assert found == ("75 % of waiting: Mutex.Lock in main.(*Cache).Get (2.go:20), 15.0 s +-5 %.")


def test_samples_have_no_mean() -> None:
    found = WALL.make_profile(
        [sample(LOCK, 5000, 15 * S), sample(SEND, 100, 5 * S)],
        [MAIN],
        time_ns=0,
        duration_ns=10 * S,
    )
    assert finding(found) == (
        "75 % of the time of all goroutines: Mutex.Lock in main.(*Cache).Get (2.go:20)."
    )


@pytest.mark.parametrize(
    "profile",
    [
        block(sample(LOCK, 99, 15 * S), sample(SEND, 100, 5 * S)),
        block(sample(LOCK, 5000, 4 * S), sample(SEND, 100, 3 * S), sample(RECEIVE, 100, 3 * S)),
        block(sample(LOCK, 5000, S // 2), sample(SEND, 100, S // 10)),
        block(sample(LOCK, 5000, 15 * S, (2.0 * S) ** 2), sample(SEND, 100, 5 * S)),
        block(sample(LOCK, 5000, 15 * S)),
        block(),
    ],
    ids=["few", "not most", "little waiting", "rough", "nothing beside it", "nothing"],
)
def test_nothing_is_reported_on_thin_evidence(profile: Profile) -> None:
    assert finding(profile) == ""


def test_a_lock_with_its_holder() -> None:
    release = sample(UNLOCK, 5000, 15 * S)
    profile = MUTEX.make_profile(
        [release, sample(("sync.(*Mutex).Unlock", "main.log"), 10, S)],
        [MAIN],
        time_ns=0,
        duration_ns=10 * S,
    )
    lock = Lock(0xC000, "sync.Mutex", "main.Cache.mu", (), (release,), 4000, 8 * S)
    assert finding(profile, [lock]) == (
        "94 % of the waiting for locks is for one, main.Cache.mu, held for 2.00 ms on average by "
        "main.(*Cache).Get (2.go:20)."
    )
    seldom = Lock(0xC000, "sync.Mutex", None, (), (release,), 40, S)
    assert finding(profile, [seldom]).endswith("is for one, sync.Mutex at 0xc000.")


def test_where_few_releases_are_known_none_is_named() -> None:
    known = sample(UNLOCK, 5000, 15 * S)

    def mutex(unknown_ns: int) -> Profile:
        unknown = Sample((UNKNOWN_RELEASE,), (0, unknown_ns))
        return MUTEX.make_profile([known, unknown], [MAIN], time_ns=0, duration_ns=10 * S)

    assert "main.(*Cache).Get" in finding(mutex(S))
    assert finding(mutex(3 * S)) == summary(mutex(3 * S)) == ""


def test_a_function_that_takes_a_third_of_the_cpu_time_for_sure() -> None:
    def cpu(samples: int, others: int) -> Profile:
        found = [
            sample(("runtime.memmove", "main.copy"), samples, samples),
            sample(("main.work",), others // 2, others // 2),
            sample(("main.rest",), others // 2, others // 2),
        ]
        return CPU.make_profile(found, [MAIN], time_ns=0, duration_ns=S)

    assert finding(cpu(500, 500)) == (
        "50 % (give or take 1.6 %) of CPU time: runtime.memmove itself, "
        "called in main.copy (2.go:20)."
    )
    assert finding(cpu(35, 65)) == ""  # too uncertain
    assert finding(cpu(40, 40)) == ""  # too few


def test_where_nothing_stands_out_the_largest_place_is_reported() -> None:
    spread = block(sample(LOCK, 5000, 4 * S), sample(SEND, 100, 3 * S), sample(RECEIVE, 9, 3 * S))
    assert summary(spread) == (
        "No single place stands out. The largest: 40 % of waiting: Mutex.Lock in "
        "main.(*Cache).Get (2.go:20), 4.00 s in 5,000 waits."
    )
    few = block(sample(LOCK, 1, S // 100), sample(SEND, 1, S // 1000))
    assert summary(few) == (
        "91 % of waiting: Mutex.Lock in main.(*Cache).Get (2.go:20), 10.0 ms in 1 wait."
    )


def test_a_row_without_a_function_does_not_do_it_itself() -> None:
    found = [sample(("[other objects in use]",), 50, 50), sample(("main.open",), 9, 9)]
    heap = CPU.make_profile(found, [MAIN], time_ns=0, duration_ns=S)
    assert "CPU time: [other objects in use], " in summary(heap)


def test_a_rough_estimate_names_no_place() -> None:
    found = summary(block(sample(LOCK, 5000, 15 * S, (9.0 * S) ** 2)))
    assert "too short, or sampled too little" in found
    assert "--max-overhead 0" in found
    assert "main." not in found


def test_the_place_is_in_the_programs_own_code() -> None:
    stack = ("runtime.chanrecv1", "net/http.(*persistConn).roundTrip", "main.(*Shop).fetch")
    found = summary(block(sample(stack, 200, 15 * S), sample(SEND, 100, 5 * S)))
    assert " in main.(*Shop).fetch (3.go:30)" in found


def test_there_is_always_a_sentence() -> None:
    assert summary(block()) == "No goroutine waited and was woken."
    worker = sample(("runtime.chanrecv1", "main.(*Pool).worker"), 10, S)
    assert summary(block(worker)) == "Only idle waits were recorded."
    quiet, loud = block(), block(sample(LOCK, 5000, 15 * S), sample(SEND, 100, 5 * S))
    assert summaries([quiet, loud], (), "mutex") == [finding(loud)]
    assert summaries([quiet, block()], (), "mutex") == [summary(quiet)]


def test_a_summary_has_the_error_of_its_time() -> None:
    found = summary(block(sample(LOCK, 50, 15 * S, (3.0 * S) ** 2), sample(SEND, 10, S)))
    assert found == "94 % of waiting: Mutex.Lock in main.(*Cache).Get (2.go:20), 15 s +-20 %."
