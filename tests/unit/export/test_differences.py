"""The difference of two profiles, in each format that can show it."""

import re
from dataclasses import replace

import pytest

from ebpfprof.errors import InvalidProfile
from ebpfprof.export import formats, pprof
from ebpfprof.profile.delta import normalized
from ebpfprof.profile.idle import rule_of, split
from ebpfprof.profile.model import Frame, Label, Profile, Sample
from ebpfprof.profile.wait_histogram import WaitHistogram
from ebpfprof.profilers.waits.kinds import MUTEX
from tests.unit.export.profiles import CPU, IDLE, SLEEPER
from tests.unit.export.small_profile import LOCK, RECEIVE, SMALL, WORK


def changed(*samples: Sample) -> Profile:
    return replace(SMALL, samples=samples, duration_ns=60_000_000_000)


def test_a_text_difference_lists_growth_and_shrinkage() -> None:
    base = changed(Sample((RECEIVE, WORK), (2, 1000)), Sample((LOCK, WORK), (1, 9000)))
    later = changed(
        Sample((RECEIVE, WORK), (2, 4000)),
        Sample((LOCK, SLEEPER), (1, 500)),
        Sample((LOCK,), (1, 9)),
    )
    text = formats.encode_difference(later, base, "text").decode()
    assert [re.sub(r" +", " ", line).strip() for line in text.splitlines()] == [
        "Waits of api: 10.0 us before, 4.51 us after (1.00 min and 1.00 min recorded)",
        "Change: -5.49 us (-54.9%)",
        "Delay per second: 167 ns before, 75 ns after (-55.1%)",
        "Mean delay: 3.33 us before, 1.13 us after (-66.2%)",
        "",
        "More:",
        "Change Share Itself Before After Mean Operation Called from",
        "+3.00 us +30.0% +300% 1.00 us 4.00 us 500 ns to 2.00 us chan receive main.work",
        "+500 ns +5.0% new 0 ns 500 ns - to 500 ns RWMutex.Lock main.(*Pool).worker",
        "+9 ns +0.1% new 0 ns 9 ns - to 9 ns RWMutex.Lock sync.(*RWMutex).Lock",
        "",
        "Less:",
        "Change Share Itself Before After Mean Operation Called from",
        "-9.00 us -90.0% gone 9.00 us 0 ns 9.00 us to - RWMutex.Lock main.work",
    ]


def test_distributions_are_compared() -> None:
    usual = [1_000_000] * 990
    base = Sample(
        (RECEIVE, WORK), (1000, 10**9), lengths=WaitHistogram.of([*usual, *[2 << 20] * 10])
    )
    slow = WaitHistogram.of([*usual, *[40_000_000] * 10])
    later = Sample((RECEIVE, WORK), (1000, 2 * 10**9), lengths=slow)
    text = formats.encode_difference(changed(later), changed(base), "text").decode()
    assert text.splitlines()[4:7] == [
        "p50 of waits: 1.0 ms before, 1.0 ms after (unchanged)",
        "p99 of waits: 1.0 ms before, 1.0 ms after (unchanged)",
        "Longest wait: 2.2 ms before, 40 ms after (+1688.2%)",
    ]
    without = replace(base, lengths=WaitHistogram())
    assert "p50" not in formats.encode_difference(changed(later), changed(without), "text").decode()


def test_distributions_of_releases_are_of_their_delays() -> None:
    unlock = replace(LOCK, frames=(Frame("sync.(*Mutex).Unlock", "/go/sync/mutex.go", 7),))
    release = Sample((unlock, WORK), (100, 10**9), lengths=WaitHistogram.of([10_000_000] * 100))
    profile = MUTEX.make_profile([release], [], time_ns=1, duration_ns=10**9)
    lines = formats.encode_difference(profile, profile, "text").decode().splitlines()
    assert "p99 of releases: 10 ms before, 10 ms after (unchanged)" in lines
    assert "Longest delay of releases: 10 ms before, 10 ms after (unchanged)" in lines


def test_lines_of_a_function_are_the_same_place() -> None:
    moved = replace(WORK, frames=(Frame("main.work", "/src/main.go", 99),))
    text = formats.encode_difference(
        changed(Sample((RECEIVE, moved), (2, 1000))),
        changed(Sample((RECEIVE, WORK), (2, 1000))),
        "text",
    ).decode()
    assert "No place in the program differs." in text


def test_a_difference_of_cpu_profiles_is_by_function() -> None:
    base = replace(CPU, samples=CPU.samples[:1])
    found = formats.encode_difference(CPU, base, "text", sample_type="samples").decode()
    rows = [re.sub(r" +", " ", line).strip() for line in found.splitlines()]
    assert "Change Share Itself Before After Function" in rows
    assert "+1 +33.3% new 0 1 main.work" in rows


def test_the_text_says_how_much_was_hidden_on_both_sides() -> None:
    found = formats.encode_difference(IDLE, SMALL, "text", hide_idle=True).decode().splitlines()
    assert any(line.startswith("Before: Hidden as idle: 300 ns in 2 waits") for line in found)
    assert any(line.startswith("After: Hidden as idle: 700 ns in 7 waits") for line in found)
    folded_lines = formats.encode_difference(IDLE, SMALL, "folded", hide_idle=True).decode()
    assert "chanrecv" not in folded_lines


def test_folded_differences_are_as_difffolded_writes_them() -> None:
    base = replace(SMALL, samples=SMALL.samples[1:])
    assert formats.encode_difference(SMALL, base, "folded").decode().splitlines() == [
        "main.work;runtime.chanrecv1 0 300",
        "main.work;sync.(*RWMutex).Lock;sync.(*Mutex).Lock 4500 4500",
    ]


def test_a_pprof_difference_is_as_diff_base_writes_it() -> None:
    base = replace(SMALL, samples=SMALL.samples[1:])
    found = pprof.decode(formats.encode_difference(SMALL, base, "pprof"))
    by_label = sorted((sample.labels, sample.values) for sample in found.samples if sample.labels)
    assert by_label == [((Label("pprof::base", "true"),), (-1, -4500))]
    assert sorted(sample.values for sample in found.samples) == [(-1, -4500), (1, 4500), (2, 300)]


@pytest.mark.parametrize("name", formats.DIFFERENCES)
def test_profiles_of_other_types_have_no_difference(name: str) -> None:
    with pytest.raises(InvalidProfile, match="only profiles of the same kind"):
        formats.encode_difference(SMALL, CPU, name)


def test_the_largest_changes_come_first_and_the_rest_is_counted() -> None:
    def place(number: int, value: int) -> Sample:
        there = replace(WORK, frames=(Frame(f"main.f{number}", "/src/main.go", 1),))
        return Sample((RECEIVE, there), (1, value))

    base = changed(*(place(n, 100) for n in range(24)))
    later = changed(*(place(n, 100 + (n - 12) * 5) for n in range(24)))
    text = formats.encode_difference(later, base, "text").decode()
    grown, _, shrunk = text.partition("Less:")
    names = [re.findall(r"main\.(f\d+)", part) for part in (grown, shrunk)]
    assert names == [[f"f{n}" for n in range(23, 13, -1)], [f"f{n}" for n in range(10)]]
    assert "and 1 more place\n" in grown
    assert "and 2 more places" in shrunk


def test_hidden_idle_waits_do_not_count_in_what_is_normalized() -> None:
    """Twice as many idle waits would otherwise halve all others."""
    more = [
        replace(sample, values=tuple(2 * value for value in sample.values))
        if rule_of("block", sample)
        else sample
        for sample in IDLE.samples
    ]
    busier = replace(IDLE, samples=tuple(more))
    shown = normalized(busier, IDLE, hides_idle=True)
    assert split(shown)[0].samples == split(IDLE)[0].samples
    assert split(normalized(busier, IDLE))[0].samples != split(IDLE)[0].samples
