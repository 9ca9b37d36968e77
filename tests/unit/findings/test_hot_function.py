"""Work for which a service should not use its CPU time."""

from __future__ import annotations

import pytest

from ebpfprof.findings import hot_function
from ebpfprof.findings.evidence import Evidence
from ebpfprof.findings.finding import MOST_CPU_TIME
from ebpfprof.profile.model import Sample
from tests.unit.findings.evidence import HANDLER, burns, evidence, waits
from tests.unit.findings.runtime_evidence import counted

CHECK = "main.(*form).isValid:18"
COMPILE = ("regexp/syntax.Parse", "regexp.compile", "regexp.MustCompile")
JSON = ("reflect.Value.Field", "encoding/json.Unmarshal")
WORKS = burns("main.(*form).save:30", *HANDLER, cores=0.6)


def service(*cpu: Sample, busy: float = 0.3) -> Evidence:
    request = waits("running", CHECK, *HANDLER, mean=1)
    return evidence(request, cpu=cpu, runtime=counted(busy=busy))


def test_expressions_that_are_compiled_again_and_again_are_waste() -> None:
    compiles = burns(*COMPILE, CHECK, *HANDLER, cores=0.4)
    (finding,) = hot_function.find(service(compiles, WORKS))
    assert finding.kind == "hot_function"
    assert finding.share == pytest.approx(0.4)
    assert finding.of_time is None
    assert finding.title == ("CPU time: 40 % for compiling regular expressions (1.0 CPUs used).")
    assert finding.lines[0] == "Most of it in main.(*form).isValid (form.go:18), 40 %."


def test_what_is_done_once_at_the_start_is_no_waste() -> None:
    start = burns(*COMPILE, "main.init", "runtime.doInit1", "runtime.main", cores=0.4)
    assert not [*hot_function.find(service(start, WORKS))]


def test_json_is_hot_only_where_processors_are_short() -> None:
    json = burns(*JSON, CHECK, *HANDLER, cores=3)
    (finding,) = hot_function.find(service(json, WORKS, busy=0.9))
    assert "83 % for JSON" in finding.title
    assert finding.of_time == finding.share  # requests do nothing but run
    assert not [*hot_function.find(service(json, WORKS, busy=0.3))]
    starved = burns(*JSON, CHECK, *HANDLER, cores=0.5)
    assert not [*hot_function.find(service(starved, WORKS, busy=0.9))]


def test_work_on_the_cpu_also_takes_the_time_for_which_requests_wait_for_one() -> None:
    works = waits("running", CHECK, *HANDLER, mean=1)
    queue = waits("runnable", CHECK, *HANDLER, mean=2)
    answer = waits("IO wait", CHECK, *HANDLER, mean=1)
    json = burns(*JSON, CHECK, *HANDLER, cores=1.4)
    busy = evidence(works, queue, answer, cpu=[json, WORKS], runtime=counted(busy=0.9))
    (finding,) = hot_function.find(busy)
    assert finding.of_time == pytest.approx(0.7 * 0.75)


@pytest.mark.parametrize(("other", "is_most"), [(0.6, True), (1.6, False)])
def test_work_that_takes_most_of_the_cpu_time_says_so(other: float, *, is_most: bool) -> None:
    json = burns(*JSON, CHECK, *HANDLER, cores=1.4)
    works = burns("main.(*form).save:30", *HANDLER, cores=other)
    (finding,) = hot_function.find(service(json, works, busy=0.9))
    assert (MOST_CPU_TIME in finding.about) == is_most


def test_a_batch_program_may_use_its_cpu_time_for_anything_but_waste() -> None:
    batch = waits("running", "main.pack", mean=4)
    packs = burns("compress/flate.(*compressor).deflate", "main.pack", cores=4)
    assert not [*hot_function.find(evidence(batch, cpu=[packs], runtime=counted(busy=1.0)))]


@pytest.mark.parametrize(
    "cpu",
    [
        (burns(*COMPILE, CHECK, *HANDLER, cores=0.05), WORKS),  # 8 %
        (burns(*COMPILE, CHECK, *HANDLER, cores=0.1),),  # of a tenth of a CPU
        (WORKS,),
        (),
    ],
)
def test_a_small_part_is_not_reported(cpu: tuple[Sample, ...]) -> None:
    assert not [*hot_function.find(service(*cpu, busy=0.9))]


def test_a_part_that_few_samples_show_is_not_reported() -> None:
    few = burns(*COMPILE, CHECK, *HANDLER, cores=0.026), burns(CHECK, *HANDLER, cores=0.18)
    assert not [*hot_function.find(service(*few))]


def test_waste_is_reported_rather_than_what_is_merely_hot() -> None:
    json = burns(*JSON, CHECK, *HANDLER, cores=2)
    compiles = burns(*COMPILE, CHECK, *HANDLER, cores=1)
    (finding,) = hot_function.find(service(json, compiles, busy=0.9))
    assert "regular expressions" in finding.title


@pytest.mark.parametrize(
    "function",
    [
        *("runtime.concatstrings", "log.(*Logger).output", "encoding/xml.Unmarshal"),
        *("compress/flate.(*compressor).deflate", "fmt.Sprintf", "reflect.Value.Field"),
        *("time.Now", "runtime.mapIterNext"),
    ],
)
def test_usual_work_is_reported_only_where_processors_are_short(function: str) -> None:
    works = burns(function, CHECK, *HANDLER, cores=3)
    assert not [*hot_function.find(service(works, WORKS, busy=0.3))]
    (finding,) = hot_function.find(service(works, WORKS, busy=0.9))
    assert finding.of_time == finding.share
