"""Outputs of the benchmark of costs: tables, JSON, verdicts, charts."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from ebpfprof.profile.model import Frame, Location, Mapping, Profile, Sample
from ebpfprof.profilers.waits.kinds import BLOCK
from tests.bench import charts
from tests.bench.accuracy import compared
from tests.bench.arms import ARMS
from tests.bench.costdocs import (
    DOCUMENT,
    SHORT_DOCUMENT,
    eighth_tables,
    picture_of_costs,
    picture_of_growth,
    short_tables,
    tables,
    with_tables,
)
from tests.bench.costresults import (
    Accuracy,
    BpfRun,
    Cost,
    Curve,
    Machine,
    Measured,
    Results,
    ResultsError,
    WaitCost,
    Ways,
    verdicts,
)
from tests.bench.pairs import Estimate
from tests.bench.workloads import WORKLOADS

MAPPING = Mapping(0x400000, 0x500000, 0, "/srv/program", "c0ffee")


def cost(value: float, spread: float = 0.0, own: float = 0.0) -> Cost:
    return Cost(Estimate(value, value - spread, value + spread), 100 * value, 12, own)


def results(**costs: Cost) -> Results:
    arms = {arm.name: arm.title for arm in ARMS} | {"bounded": "ebpfprof: bounded"}
    by_arm = {name.replace("_", "-"): each for name, each in costs.items()}
    measured = Measured("ping-pong", "one send", 100.0, 90.0, 110.0, by_arm)
    return Results(
        machine=Machine("2026-01-02", "Some <processor>", 2, "6.18", "1.27.3", 0.25, 0.01),
        arms=arms,
        workloads={"pingpong": measured, "http": replace(measured, title="HTTP & server")},
        accuracy={"ping-pong": {"bounded": Accuracy(3, 0.99, 0.05, -0.01)}},
        growth=(Curve("frames", ((4.0, 500.0), (128.0, 900.5))),),
        bpf=(BpfRun("on_wait", "all", 10, 117.3), BpfRun("on_wake", "all", 10, 60.0)),
        wait_costs=(
            WaitCost("ping-pong", "every wait", 2000.0, 1900.0),
            WaitCost("ping-pong", "one in eight", 400.0, 350.0),
            WaitCost("HTTP & server", "every wait", -5.0, 1900.0),
            WaitCost("HTTP & server", "one in eight", 500.0, 350.0),
        ),
        ways=(Ways(2000.0, 1.0, 0.0, 0.0, 0, 0.004), Ways(5e4, 0.01, 0.09, 0.105, 21, 0.0112)),
    )


KEPT, NOISE, BROKEN = "kept", "not shown: within noise", "**not kept**"


def verdict_on(words: str, found: Results) -> str:
    (verdict,) = (v for v in verdicts(found) if words in v.promise)
    assert verdict.may_be_kept == (verdict.text != BROKEN)
    return verdict.text


def test_saved_results_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "cost.json"
    saved = results(block=cost(8.5, 0.25))
    saved.save(path)
    assert Results.load(path) == saved
    path.write_text(path.read_text().replace('"go"', '"went"'))
    with pytest.raises(ResultsError, match=r"not as tests\.bench\.cost writes it"):
        Results.load(path)


def test_a_part_that_is_measured_again_replaces_that_part_alone() -> None:
    before = results(block=cost(8.5))
    later = replace(
        results(block=cost(1.5)),
        machine=replace(before.machine, date="2026-02-03"),
        accuracy={"ping-pong": {"bounded": Accuracy(3, 0.99, 0.5, -0.01)}},
    )
    found = before.with_parts(later, ["accuracy"])
    assert (found.accuracy, found.workloads) == (later.accuracy, before.workloads)
    line = tables(found)["machine"]
    assert line.startswith("2026-01-02, ")
    assert line.endswith(" Measured again: accuracy, 2026-02-03.\n")


def test_each_profiler_is_a_row_and_each_workload_a_column() -> None:
    found = tables(results(block=cost(8.5, 0.25, own=0.0123), go_cpu=cost(1.01)))
    assert found["costs"].splitlines() == [
        "| times bare | ping-pong | HTTP & server |",
        "| --- | --- | --- |",
        "| bare: ns a unit [quartiles] | **100 [90, 110]** | **100 [90, 110]** |",
        "| Go's own: CPU, 100 Hz | 1.010 [1.010, 1.010] | 1.010 [1.010, 1.010] |",
        "| ebpfprof: block | 8.50 [8.25, 8.75] | 8.50 [8.25, 8.75] |",
    ]
    assert found["own"].splitlines()[2:] == ["| ebpfprof: block | 1.2% | 1.2% |"]
    assert "| ping-pong | 3 | 99.0% | 5.00% | -1.00% |" in found["accuracy"]
    assert "| ns an event | 500 | 900 |" in found["growth"]
    assert "| `on_wait` | all | 117 |" in found["bpf"]
    assert "Some <processor>, 2 CPUs, Linux 6.18, Go 1.27.3; 12 rounds each" in found["machine"]


def test_one_in_eight_is_shown_beside_what_it_is_compared_with() -> None:
    found = eighth_tables(results(eighth=cost(4.5), go_block_1=cost(2.0), cpu=cost(1.0)))
    rows = [line.split(" | ")[0] for line in found["eighth"].splitlines()[3:]]
    assert rows == ["| Go's own: block, rate 1", "| ebpfprof: block, one wait in eight"]
    assert "12 rounds each" in found["eighth, machine"]


def test_waits_that_one_percent_affords_follow_from_their_cost() -> None:
    found = eighth_tables(results())
    assert "eighth" not in found
    assert found["wait costs"].splitlines()[2:] == [
        "| ping-pong | 2,000 | 1,900 | 5,000 | 400 | 350 | 25,000 |",
        "| HTTP & server | -5 | 1,900 |  | 500 | 350 | 20,000 |",
    ]
    assert found["ways"].splitlines()[2:] == [
        "| 2,000 | 100% of the time | 0% of the time | 0% of the time | 0 | 0.40% |",
        "| 50,000 | 1% of the time | 9% of the time | 10% of the time | 21 | 1.12% |",
    ]
    assert eighth_tables(replace(results(), wait_costs=(), ways=())) == {}


def test_exact_recording_is_shown_beside_the_floor_of_the_same_run() -> None:
    found = tables(results(floor=cost(5.0, 0.5), block=cost(6.0, 0.25)))
    assert found["floor"].splitlines()[2] == (
        "| ping-pong | 400 [350, 450] | 500 [475, 525] | 1.250 [1.056, 1.500] |"
    )


def test_a_floor_within_noise_gives_no_ratio() -> None:
    found = tables(results(floor=cost(1.01, 0.02), block=cost(1.1)))
    assert "the floor is within noise" in found["floor"]
    assert "floor" not in tables(results(block=cost(1.1)))


@pytest.mark.parametrize(
    ("ours", "theirs", "text"),
    [(cost(8), cost(80), KEPT), (cost(10), cost(80), BROKEN), (cost(10, 2), cost(80), NOISE)],
)
def test_the_verdict_on_a_tenth_of_bpftraces_cost(ours: Cost, theirs: Cost, text: str) -> None:
    assert verdict_on("bpftrace adds", results(block=ours, bpftrace_block=theirs)) == text


@pytest.mark.parametrize(
    ("bounded", "text"),
    [(cost(1.019), KEPT), (cost(1.03), BROKEN), (cost(1.03, 0.02), NOISE)],
)
def test_the_verdict_on_two_percent_under_the_bound(bounded: Cost, text: str) -> None:
    assert verdict_on("ping-pong: at most 2%", results(bounded=bounded)) == text


@pytest.mark.parametrize(
    ("ours", "theirs", "text"),
    [
        (cost(1.1), cost(1.2), KEPT),
        (cost(1.2), cost(1.1), BROKEN),
        (cost(1.2, 0.1), cost(1.1), NOISE),
    ],
)
def test_the_verdict_on_the_server_beside_gos_profiler(ours: Cost, theirs: Cost, text: str) -> None:
    found = results(block=ours, go_block_10000_cpu=theirs)
    assert verdict_on("HTTP server: the exact", found) == text


def test_the_verdict_on_the_top_ten_stacks() -> None:
    found = results()
    assert verdict_on("top ten", found) == KEPT
    far = {"ping-pong": {"bounded": Accuracy(3, 0.99, 0.11, 0.0)}}
    assert verdict_on("top ten", replace(found, accuracy=far)) == BROKEN
    by_chance = {"ping-pong": {"bounded": Accuracy(3, 0.99, 0.11, 0.0, error=0.006)}}
    assert verdict_on("top ten", replace(found, accuracy=by_chance)) == NOISE


def profile(**delays_ns: int) -> Profile:
    samples = [
        Sample(
            (Location(0x400000 + sum(map(ord, name)), MAPPING, (Frame(name, "x.go", 1),)),),
            (1, delay_ns),
        )
        for name, delay_ns in delays_ns.items()
    ]
    return BLOCK.make_profile(samples, (MAPPING,), time_ns=1, duration_ns=1)


def test_only_the_top_stacks_are_compared() -> None:
    go = profile(a=1000, b=2000, c=100)
    found = compared(go, profile(a=900, b=2100, c=1), top=2)
    assert found.stacks == 2
    assert found.share == pytest.approx(3000 / 3100)
    assert found.largest == pytest.approx(0.1)
    assert found.whole == pytest.approx(3001 / 3100 - 1)


def test_negligible_stacks_are_not_compared() -> None:
    found = compared(profile(a=1000, b=2000, c=10), profile(a=1000, b=2000))
    assert (found.stacks, found.largest) == (2, 0)


def test_a_missing_top_stack_has_the_largest_error() -> None:
    assert compared(profile(a=1000, b=2000), profile(a=1000)).largest == 1


def test_the_standard_error_comes_from_the_profile() -> None:
    ours = profile(a=1000)
    assert compared(profile(a=1000), ours).error == 0
    reported = "at most +-2.5 % on the ten stacks with the longest delays (one standard error)"
    assert compared(profile(a=1000), replace(ours, comments=(reported,))).error == 0.025


def test_tables_are_written_between_their_marks() -> None:
    text = (
        "before\n<!-- tests.bench.cost, bpf: begin -->\nold\n"
        "<!-- tests.bench.cost, bpf: end -->\nafter\n"
    )
    written = with_tables(text, {"bpf": "| new |\n"})
    assert written == text.replace("old", "\n| new |\n")
    assert with_tables(written, {"bpf": "| new |\n"}) == written
    with pytest.raises(ResultsError, match="has lost its marks"):
        with_tables(text, {"costs": "| new |\n"})


def test_the_document_has_a_place_for_every_table() -> None:
    with_tables(DOCUMENT.read_text(), tables(results(block=cost(8.5))))
    with_tables(DOCUMENT.read_text(), eighth_tables(results(eighth=cost(4.5))))
    with_tables(SHORT_DOCUMENT.read_text(), short_tables(results(block=cost(8.5))))


def test_the_short_table_has_the_rows_of_its_document() -> None:
    found = results(block=cost(8.5), go_cpu=cost(1.01), bounded_all=cost(1.0))
    found = replace(found, workloads={**found.workloads, "garbage": found.workloads["http"]})
    assert short_tables(found)["short"].splitlines() == [
        "| times bare | ping-pong | HTTP & server |",
        "| --- | --- | --- |",
        "| bare: ns a unit [quartiles] | **100 [90, 110]** | **100 [90, 110]** |",
        "| ebpfprof: block | 8.50 [8.50, 8.50] | 8.50 [8.50, 8.50] |",
        "| ebpfprof: block, mutex, cpu, at most 1 % |" + 2 * " 1.000 [1.000, 1.000] |",
    ]
    assert short_tables(replace(found, workloads={})) == {}
    lines = SHORT_DOCUMENT.read_text().splitlines()
    headings = [line for line in lines if line.startswith("| times bare |")]
    assert headings == ["| times bare | ping-pong | contended mutex | worker pool | HTTP server |"]


def test_charts_are_svg_with_all_measurements() -> None:
    found = results(block=cost(8.5, 0.25), bpftrace_block=cost(250), go_cpu=cost(0.99, 0.02))
    texts = [element.text for element in ET.fromstring(picture_of_costs(found)).iter()]
    assert texts.count("ebpfprof: block") == texts.count("8.5") == 2
    assert "×1,000" in texts
    assert "HTTP & server: one send, 100 ns bare" in texts
    texts = [element.text for element in ET.fromstring(picture_of_growth(found)).iter()]
    assert {"frames", "4", "128", "1,000"} <= set(texts)


def test_a_curve_of_a_single_negative_point_can_be_drawn() -> None:
    ET.fromstring(charts.curves("x", [charts.Line("y", ((1.0, -3.0),))]))


def test_names_of_arms_and_workloads_are_distinct() -> None:
    for names in ([arm.name for arm in ARMS], [workload.name for workload in WORKLOADS]):
        assert len(set(names)) == len(names)
    known = {workload.name for workload in WORKLOADS}
    assert all(set(arm.only) <= known for arm in ARMS)
