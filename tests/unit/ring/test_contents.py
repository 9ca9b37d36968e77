"""Files of the ring: pprof files that also say of whom and of what time they are."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ebpfprof.errors import InvalidProfile
from ebpfprof.export import pprof
from ebpfprof.overhead.cost import Overhead, Runs
from ebpfprof.profile.losses import Loss
from ebpfprof.profile.model import Profile, Sample
from ebpfprof.profile.service import ServiceIdentity
from ebpfprof.profilers.account import RecordingAccount
from ebpfprof.profilers.heap.allocation_samples import AllocationCoverage
from ebpfprof.profilers.registry import kind_named, kinds
from ebpfprof.profilers.sample_coverage import SampleCoverage
from ebpfprof.profilers.waits.coverage import Deviation, WaitsCoverage
from ebpfprof.ring.contents import MAX_HEADER, RingProcess, facts, packed, unpacked
from tests.toolchains import toolchain
from tests.unit.export.small_profile import LOCK, MAIN, RECEIVE, SMALL, WORK
from tests.unit.ring.made_up import NS, SHOP, START_S, location, profile_of

PROCESS = RingProcess(SHOP, 42, 5_000_000_000, "boot", 1_000_000_000, "shop", "go1.27.3")
START_NS = round(START_S * NS)
END_NS = START_NS + 60 * NS
WINDOWS = WaitsCoverage(
    60 * NS, 2 * NS, 3 * NS, NS, 40, {"block": Deviation(60.0, 3e9, 4.0, 9e16)}, 5e8
)


def estimated(profile: Profile) -> Profile:
    """The profile as an estimate from windows, with the errors of its stacks."""
    samples = tuple(
        replace(
            each,
            variance=(0.1 * each.values[1]) ** 2,
            count_variance=(0.2 * each.values[0]) ** 2,
        )
        for each in profile.samples
    )
    account = RecordingAccount(
        "block",
        "block profile of process 42 (shop, go1.27.3)",
        "every event",
        60 * NS,
        remarks=("names are missing",),
        overhead=Overhead(Runs(7, 700.0, 3), Runs(), 1500.0, 30 * NS, None),
        losses=(Loss("unread", "waits without a stack", 3, ("block",), target=5),),
        coverage=WINDOWS,
        spread={(each.locations, each.labels): (each.values[1], each.variance) for each in samples},
        counted={"cut by Go: {}": 2},
        events=3,
        idle=("idle: a comment",),
    )
    return replace(profile, samples=samples).accounted(account)


def test_a_file_gives_back_its_profile_and_says_of_whom_and_when_it_is() -> None:
    data = packed(SMALL, PROCESS, START_NS, END_NS)
    about, profile = unpacked(data)
    assert (about.kind, about.start_ns, about.end_ns) == ("block", START_NS, END_NS)
    assert about.process == PROCESS
    assert about.totals == (3, 4800)
    assert profile == pprof.decode(pprof.encode(SMALL))
    assert facts(data[:MAX_HEADER]) == about


def test_its_profile_is_byte_for_byte_what_the_exporter_writes() -> None:
    data = packed(estimated(SMALL), PROCESS, START_NS, END_NS)
    assert gzip.decompress(data) == gzip.decompress(pprof.encode(estimated(SMALL)))


@pytest.mark.machine
def test_gos_pprof_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "waits.pb.gz"
    path.write_bytes(packed(estimated(SMALL), PROCESS, START_NS, END_NS))
    shown = toolchain("1.27").go("tool", "pprof", "-raw", path)
    assert "main.work" in shown
    assert "4500" in shown


def test_an_estimate_keeps_its_account_and_the_errors_of_its_stacks() -> None:
    before = estimated(SMALL)
    about, after = unpacked(packed(before, PROCESS, START_NS, END_NS))
    assert about.is_estimate
    assert after.account is not None
    assert after.account.comments() == before.comments == after.comments
    found = {each.locations: each for each in after.samples}
    for each in before.samples:
        same = found[each.locations]
        assert same.variance == pytest.approx(each.variance, rel=1e-2)
        assert same.count_variance == pytest.approx(each.count_variance, rel=1e-2)


def test_counts_of_a_file_of_format_1_are_as_uncertain_as_delays() -> None:
    """It has no errors of counts; without any, counts would pass as exact."""
    exact_counts = [replace(each, count_variance=0.0) for each in estimated(SMALL).samples]
    before = replace(estimated(SMALL), samples=tuple(exact_counts))
    data = packed(before, PROCESS, START_NS, END_NS)
    (_, now), (_, then) = unpacked(data), unpacked(with_facts(data, {"format": 1}))
    assert [each.count_variance for each in now.samples] == [0, 0]
    for each in then.samples:
        assert each.count_variance == pytest.approx((0.1 * each.values[0]) ** 2, rel=1e-2)
        assert each.variance == pytest.approx((0.1 * each.values[1]) ** 2, rel=1e-2)


def test_a_loss_has_no_number_of_a_target_that_means_nothing_later() -> None:
    _, after = unpacked(packed(estimated(SMALL), PROCESS, START_NS, END_NS))
    assert isinstance(after.account, RecordingAccount)
    assert [each.target for each in after.account.losses] == [None]


@pytest.mark.parametrize(
    ("kind", "coverage"),
    [
        ("block", WINDOWS),
        ("mutex", WINDOWS),
        ("wall", SampleCoverage(7, 60 * NS, 1, 2, 3.5)),
        ("heap", AllocationCoverage(0.5, 3, 512, {"heap": (0.1, float("inf"))})),
    ],
)
def test_the_coverage_of_each_kind_survives(kind: str, coverage: WaitsCoverage) -> None:
    made = kind_named(kind)
    values = tuple(range(1, len(made.sample_types) + 1))
    account = RecordingAccount(kind, "title", "every event", NS, coverage=coverage)
    profile = made.make_profile(
        [Sample((WORK,), values)], [MAIN], time_ns=START_NS, duration_ns=NS
    ).accounted(account)
    _, after = unpacked(packed(profile, PROCESS, START_NS, END_NS))
    assert isinstance(after.account, RecordingAccount)
    assert after.account.coverage == coverage


def test_each_kind_that_may_be_an_estimate_names_its_coverage() -> None:
    assert {each.name for each in kinds() if each.coverage} == {
        *("block", "mutex", "wakers", "runqueue", "wall", "heap", "allocs")
    }


@pytest.mark.parametrize(("count_variance", "least"), [(0.0, 16_000), (0.01, 8_000)])
def test_seventeen_thousand_stacks_keep_the_errors_of_the_largest(
    count_variance: float, least: int
) -> None:
    samples = [
        Sample(
            (location("main.f", 0x401000 + n),),
            (1, 1_000_000 - n),
            variance=(100_000.0 - n) ** 2,
            count_variance=count_variance,
        )
        for n in range(17_000)
    ]
    before = replace(SMALL, samples=tuple(samples), mappings=(MAIN,))
    _, after = unpacked(packed(before, PROCESS, START_NS, END_NS))
    assert len(after.samples) == len(samples)
    largest = max(after.samples, key=lambda each: each.values[1])
    assert largest.variance == pytest.approx(1e10, rel=1e-2)
    assert largest.count_variance == pytest.approx(count_variance, rel=1e-2)
    assert least < sum(each.variance > 0 for each in after.samples) < least + 1000
    assert sum(each.count_variance > 0 for each in after.samples) in (0, 8188)


def test_an_account_that_is_too_long_is_left_out() -> None:
    remarks = tuple(hashlib.sha256(n.to_bytes(2)).hexdigest() for n in range(1500))
    account = RecordingAccount("block", "title", "every event", NS, remarks=remarks)
    _, after = unpacked(packed(SMALL.accounted(account), PROCESS, START_NS, END_NS))
    assert after.account is None
    assert after.samples


def test_a_service_without_a_name_is_refused() -> None:
    nameless = replace(PROCESS, identity=ServiceIdentity(""))
    with pytest.raises(InvalidProfile, match="name is out of range"):
        packed(SMALL, nameless, START_NS, END_NS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: b"", "empty, cut off, or not gzip"),
        (lambda data: bytes(len(data)), "empty, cut off, or not gzip"),
        (lambda data: pprof.encode(SMALL), "does not name its process"),
        (lambda data: data[:14], "header is cut off"),
        (lambda data: data[: len(data) // 2 + 150], "damaged"),
        (lambda data: data[:12] + b"XX" + data[14:], "does not name its process"),
        (lambda data: data[:20] + b"\xff" * 20 + data[40:], "does not name its process"),
    ],
)
def test_a_file_that_is_damaged_is_refused_in_a_sentence(
    change: Callable[[bytes], bytes], message: str
) -> None:
    data = packed(profile_of(3, NS, START_S, stacks=200), PROCESS, START_NS, END_NS)
    with pytest.raises(InvalidProfile, match=message):
        unpacked(change(data))


def with_facts(data: bytes, change: dict[str, object]) -> bytes:
    """The file with other facts."""
    extra_length = int.from_bytes(data[10:12], "little")
    length = int.from_bytes(data[14:16], "little")
    plain = json.loads(zlib.decompress(data[16 : 16 + length])) | change
    text = zlib.compress(json.dumps(plain).encode())
    others = data[16 + length : 12 + extra_length]
    extra = data[12:14] + len(text).to_bytes(2, "little") + text + others
    return data[:10] + len(extra).to_bytes(2, "little") + extra + data[12 + extra_length :]


@pytest.mark.parametrize(
    "change",
    [
        {"kind": 7},
        {"start_ns": -1},
        {"start_ns": END_NS + 1},
        {"end_ns": 1 << 63},
        {"totals": ["3"]},
        {"process": None},
        {"process": {"pid": 1}},
        {"account": {"title": "t"}},
    ],
)
def test_facts_of_another_form_are_refused(change: dict[str, object]) -> None:
    data = with_facts(packed(SMALL, PROCESS, START_NS, END_NS), change)
    with pytest.raises(InvalidProfile, match=r"not one that ebpfprof writes|out of range"):
        unpacked(data)


def test_a_file_of_a_newer_version_names_the_way_out() -> None:
    data = with_facts(packed(SMALL, PROCESS, START_NS, END_NS), {"format": 9})
    with pytest.raises(InvalidProfile, match="of format 9, this ebpfprof reads 1 to 2: use the"):
        unpacked(data)


def test_fields_that_a_later_version_adds_are_ignored() -> None:
    data = with_facts(packed(SMALL, PROCESS, START_NS, END_NS), {"more": [1]})
    assert facts(data).process == PROCESS


def test_a_profile_of_another_kind_than_its_facts_say_is_refused() -> None:
    data = with_facts(packed(SMALL, PROCESS, START_NS, END_NS), {"kind": "goroutine"})
    with pytest.raises(InvalidProfile, match="holds no goroutine profile"):
        unpacked(data)


def test_stacks_are_the_same_as_those_of_other_files() -> None:
    one, other = (unpacked(packed(SMALL, PROCESS, START_NS + n, END_NS + n))[1] for n in range(2))
    assert [each.locations for each in one.samples] == [each.locations for each in other.samples]
    assert {each.locations for each in one.samples} == {(LOCK, WORK), (RECEIVE, WORK)}
