"""The endpoints heap and allocs: read at each request, as the program itself would answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebpfprof.export import pprof
from ebpfprof.profile.delta import totals
from ebpfprof.profilers.registry import kind_named
from ebpfprof.server import heap
from tests.builds import NEWEST, versions
from tests.continuous.fakes import FakeTarget
from tests.continuous.loops import run
from tests.differential.test_heap import EVERY_ALLOCATION, order, rows, running
from tests.go_target import read
from tests.kernel.kernel_state import has_probes
from tests.kernel.programs import program
from tests.server.fakes import Service
from tests.server.serving import Server
from tests.server.test_read_endpoint import delta
from tests.targets_run import Target

KIND = kind_named("heap")
STATISTICS = b"# runtime.MemStats"
OF_COLLECTIONS = (
    *("Lookups", "LastGC", "PauseNs", "PauseEnd", "NumGC", "NumForcedGC", "GCCPUFraction"),
    "DebugGC",
)
GROWING = (
    *("Alloc", "TotalAlloc", "Sys", "Mallocs", "HeapAlloc", "HeapObjects", "HeapInuse"),
    *("MSpan", "MCache", "BuckHashSys", "GCSys"),
)


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with running(NEWEST, rate=EVERY_ALLOCATION, GOGC="off") as target:
        order(target, "make 20")
        order(target, "gc")
        yield target


@pytest.fixture(scope="module")
def server(target: Target) -> Iterator[Server]:
    with Server("--pid", str(target.pid), "--profile", "goroutine") as server:
        assert server.ready
        yield server


@pytest.mark.parametrize("version", versions())
def test_it_answers_as_the_program_itself_would(version: str, tmp_path: Path) -> None:
    with running(version, rate=EVERY_ALLOCATION, GOGC="off") as target:
        order(target, "make 20")
        order(target, "gc")
        with Server("--pid", str(target.pid), "--profile", "goroutine") as server:
            assert server.ready
            text = server.get("/debug/pprof/heap?debug=1")
            profiles = {
                kind: server.get(f"/debug/pprof/{kind}").profile(kind)
                for kind in ("heap", "allocs")
            }
            assert not has_probes(target.pid)
            order(target, f"own {tmp_path}")
            after = server.get("/debug/pprof/heap?debug=1").body
    for kind, ours in profiles.items():
        theirs = pprof.decode((tmp_path / f"{kind}.pb.gz").read_bytes())
        assert rows(ours) == rows(theirs)
        assert ours.default_sample_type == theirs.default_sample_type
        assert ours.duration_ns == 0
    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    expected, _, gos = (tmp_path / "heap.txt").read_bytes().partition(STATISTICS)
    own, _, statistics = text.body.partition(STATISTICS)
    assert own.endswith(b"\n\n\n")
    assert expected.endswith(b"\n\n\n")
    (head, expected_records), (own_head, records) = (
        body.rstrip().split(b"\n", 1) for body in (expected, own)
    )
    assert own_head == head
    sorted_records, found = (
        sorted(each for each in body.split(b"\n\n") if not each.startswith(b"0: 0 [0: 0]"))
        for body in (expected_records, records)
    )
    assert len(found) > 40
    assert found == sorted_records
    _check_statistics(statistics, gos, after.partition(STATISTICS)[2])


def _check_statistics(ours: bytes, gos: bytes, after: bytes) -> None:
    """Go allocates while it writes: its numbers lie between ours before and after."""
    rows = [
        [line.removeprefix("# ").split(" = ") for line in text.decode().splitlines()[1:]]
        for text in (ours, gos, after)
    ]
    assert [name for name, _ in rows[0]] == [name for name, _ in rows[1]]
    before, theirs, later = map(dict, rows)
    for name in OF_COLLECTIONS:
        assert before[name] == theirs[name], name
    for name in GROWING:
        between = zip(*(each[name].split(" / ") for each in (before, theirs, later)), strict=True)
        assert all(int(low) <= int(own) <= int(high) for low, own, high in between), name
    # Go's counts what the process had before it ran this program, too (getrusage).
    assert 0 < int(before["MaxRSS"]) <= int(theirs["MaxRSS"])


@pytest.mark.parametrize("version", versions("1.19", NEWEST))
def test_totals_are_as_go_writes_them_where_nothing_was_freed(version: str, tmp_path: Path) -> None:
    with running(version, rate=EVERY_ALLOCATION, GOGC="off") as target:
        with Server("--pid", str(target.pid), "--profile", "goroutine") as server:
            assert server.ready
            ours = _bytes_in_head(server.get("/debug/pprof/heap?debug=1").body)
        order(target, f"own {tmp_path}")
    gos = _bytes_in_head((tmp_path / "heap.txt").read_bytes())
    assert ours[1] - ours[0] == gos[1] - gos[0]  # writing it allocates


def _bytes_in_head(text: bytes) -> tuple[int, int]:
    """The bytes in use and in all."""
    in_use, all_of = re.findall(rb"\d+: (\d+)", text.partition(b"\n")[0])
    return int(in_use), int(all_of)


def test_a_difference_has_what_came_and_what_went() -> None:
    async def work(target: Target) -> None:
        service = await Service.of(FakeTarget(target.pid, kinds=("cpu",)))
        before = read(target.pid, heap.profile, KIND)
        answer = await delta(service, ["make 10", "gc"], target, "heap")
        assert answer.status == 200
        assert answer.headers["content-disposition"] == 'attachment; filename="heap-delta"'
        more = pprof.decode(answer.body)
        grown = rows(read(target.pid, heap.profile, KIND))
        grown.subtract(rows(before))
        assert rows(more) == +grown
        assert {index for _, index in rows(more)} == {0, 1, 2, 3}
        fewer = pprof.decode((await delta(service, ["drop", "gc"], target, "heap")).body)
        assert min(sample.values[3] for sample in fewer.samples) < 0

    with running(NEWEST, rate=EVERY_ALLOCATION, GOGC="off") as target:
        order(target, "make 20")
        order(target, "gc")
        run(work(target))


def test_a_collection_is_not_made_and_the_answer_says_so(target: Target, server: Server) -> None:
    order(target, "make 5")
    plain = server.get("/debug/pprof/heap").profile("heap")
    asked = server.get("/debug/pprof/heap?gc=1").profile("heap")
    assert rows(asked) == rows(plain)
    assert [comment for comment in asked.comments if comment not in plain.comments] == [
        "gc=1 asks for a garbage collection first: ebpfprof makes the process do nothing, so this "
        "is as of the latest one"
    ]


def test_a_program_without_a_memory_profile_is_reported() -> None:
    with (
        Target.start(program("nopprof")) as target,
        Server("--pid", str(target.pid), "--profile", "goroutine") as server,
    ):
        assert server.ready
        answer = server.get("/debug/pprof/heap")
    assert answer.status == 404
    assert b"keeps no memory profile: its MemProfileRate is 0" in answer.body


def test_such_a_program_answers_with_what_was_recorded() -> None:
    recorded = ("--profile", "heap,allocs", "--continuous", "--max-overhead", "0")
    with (
        Target.start(program("allocations"), env={"GOGC": "off"}) as target,
        Server("--pid", str(target.pid), *recorded) as server,
    ):
        assert server.ready
        server.get("/debug/pprof/allocs")
        order(target, "mix 100")
        allocs = server.get("/debug/pprof/allocs").profile("allocs")
        heap = server.get("/debug/pprof/heap").profile("heap")
    counts = {sample.frames[0].function: sample.values[0] for sample in allocs.samples}
    assert counts["main.first"] == 100
    assert counts["main.large"] == 10
    assert any(sample.values[3] for sample in heap.samples)


def test_what_was_allocated_since_the_last_request_and_what_is_in_use(
    target: Target, server: Server
) -> None:
    """As godeltaprof: differences of what was allocated, and all that is in use."""
    order(target, "gc")
    server.get("/debug/pprof/delta_heap")
    before = server.get("/debug/pprof/heap").profile("heap")
    order(target, "make 7")
    order(target, "gc")
    since = server.get("/debug/pprof/delta_heap")
    after = server.get("/debug/pprof/heap").profile("heap")
    assert "delta_heap" not in str(server.get("/debug/pprof/").body)  # no profile of its own
    found = totals(since.profile("heap"))
    assert found[0] > 0
    assert (
        found[:2] == [new - old for new, old in zip(totals(after), totals(before), strict=True)][:2]
    )
    assert found[2:] == totals(after)[2:]
    assert since.headers["content-disposition"] == 'attachment; filename="heap.pprof.gz"'
    # Nothing is new: what is in use stays.
    again = totals(server.get("/debug/pprof/delta_heap").profile("heap"))
    assert again == [0, 0, *totals(after)[2:]]
