"""What an observation says about goroutines that it did not read, and when it reads them."""

from __future__ import annotations

from ebpfprof.findings.moments import LONG_NS, SHORT_NS
from ebpfprof.observing.observation import is_costly, lead_moments, left_out
from ebpfprof.profile.goroutines import DumpedGoroutine, GoroutineDump


def dump(count: int, *, beyond: int = 0) -> GoroutineDump:
    goroutines = tuple(
        DumpedGoroutine(goid, "chan receive", (), True, 0, 0, False, None, 0, ())
        for goid in range(1, count + 1)
    )
    return GoroutineDump(1, "shop", "go1.27.3", 0, goroutines, 10, 0, beyond)


def test_nothing_is_left_out_of_a_program_with_few_goroutines() -> None:
    assert left_out(dump(200), 1) == []
    assert left_out(dump(200), 20) == []
    assert left_out(dump(5000), 5) == []


def test_few_dumps_of_many_goroutines_are_reported() -> None:
    (once,) = left_out(dump(4990), 1)
    assert once.startswith("To read 5,000 goroutines takes long, so they were read once only")
    (twice,) = left_out(dump(4990), 2)
    assert "they were read 2 times only" in twice


def test_goroutines_beyond_the_limit_are_reported() -> None:
    beyond, few = left_out(dump(19990, beyond=80000), 1)
    assert beyond == "Stacks and locks are those of 20,000 goroutines; 80,000 were not read."
    assert few.startswith("To read 20,000 goroutines takes long")


def test_what_the_first_dump_looks_up_is_not_needed_again() -> None:
    """On a slow or busy machine it takes long, and others would be left out for 10 s and more."""
    assert not is_costly(0.3, 50, is_first=True)
    assert is_costly(0.3, 50, is_first=False)
    assert is_costly(0.3, 5000, is_first=True)
    assert not is_costly(0.1, 5000, is_first=True)


def test_what_a_late_sample_before_a_dump_saw_is_as_old_as_it_counts_for() -> None:
    late_s, dump_s = 0.001, 7.0
    longest, short, *_ = lead_moments(dump_s)
    assert dump_s - (longest + late_s) >= LONG_NS / 1e9
    assert dump_s - (short + late_s) >= SHORT_NS / 1e9
