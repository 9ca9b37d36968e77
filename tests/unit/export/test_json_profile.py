"""The JSON of a profile: what our page and other programs rely on, field by field."""

import json
from dataclasses import dataclass, replace
from typing import Any

from ebpfprof.export import json_profile
from ebpfprof.profile import idle
from ebpfprof.profile.completeness import Completeness
from ebpfprof.profile.model import Frame, Label, Location, Profile, Sample
from ebpfprof.profile.wait_histogram import WaitHistogram
from ebpfprof.profile.wait_slices import WaitSlices
from ebpfprof.profilers.cpu.kind import CPU
from tests.unit.export.small_profile import LOCK, MAIN, RECEIVE, SMALL, UNKNOWN, WORK

NASTY = "</script>\u2028<!--\x1b[31m\udcff\"'&"


def written(profile: Profile) -> dict[str, Any]:
    data = json_profile.encode(profile)
    assert data.isascii()
    found = json.loads(data)
    assert isinstance(found, dict)
    return found


def frame_texts(found: dict[str, Any]) -> list[tuple[str, str, int, str, int]]:
    strings = found["strings"]
    return [
        (strings[function], strings[file], line, strings[mapping], inlined)
        for function, file, line, mapping, inlined in found["frames"]
    ]


def test_every_field_of_a_small_profile() -> None:
    rule = idle.rule_of("block", SMALL.samples[0])
    assert rule is not None
    found = written(SMALL)
    assert frame_texts(found) == [
        ("main.work", "/src/main.go", 12, "/srv/api", 0),
        ("runtime.chanrecv1", "/go/runtime/chan.go", 442, "/srv/api", 0),
        ("sync.(*RWMutex).Lock", "/go/sync/rwmutex.go", 146, "/srv/api", 0),
        ("sync.(*Mutex).Lock", "/go/sync/mutex.go", 46, "/srv/api", 1),
    ]
    strings = found.pop("strings")
    assert strings[0] == ""
    assert len(set(strings)) == len(strings)
    assert [strings[index] for index in found.pop("operations")] == ["chan receive", "RWMutex.Lock"]
    del found["frames"]
    assert found == {
        "format": "ebpfprof-profile-1",
        "kind": "block",
        "title": "Waits of api",
        "time_s": 1_700_000_000.0,
        "duration_s": 30.0,
        "sample_types": [
            {"type": "contentions", "unit": "count"},
            {"type": "delay", "unit": "nanoseconds"},
        ],
        "default": 1,
        "counted": "Count",
        "words": {
            "rows": "operations",
            "value": "Delay",
            "place": "Called from",
            "headline": "of waiting:",
            "events": "waits",
            "nothing": "no goroutine waited and was woken",
        },
        "period": 1,
        "period_type": {"type": "contentions", "unit": "count"},
        "stacks": [[0, 1], [0, 2, 3]],
        "values": [[2, 300], [1, 4500]],
        "callers": [0, 0],
        "own": [0, 0],
        "labels": [[], []],
        "idle": [0, -1],
        "idle_rules": [{"name": rule.name, "reason": rule.reason}],
        "comments": ["every event was recorded"],
    }


def test_errors_are_written_where_values_are_estimates() -> None:
    rough = replace(SMALL.samples[0], variance=25.0)
    found = written(replace(SMALL, samples=(rough, SMALL.samples[1])))
    assert (found["errors"], found["max_error"]) == ([5.0, 0.0], 0.5)
    assert "errors" not in written(SMALL)


def test_lengths_of_waits_are_written_where_they_are_known() -> None:
    lengths = WaitHistogram.of([100] * 199 + [1000])
    known = replace(SMALL.samples[0], values=(200, 20_800), lengths=lengths)
    found = written(replace(SMALL, samples=(known, SMALL.samples[1])))
    assert found["lengths"] == [[[96, 199], [960, 1]], []]
    short, long = [100.0, 96.0, 104.0], [992.0, 960.0, 1024.0]
    assert found["quantiles"] == [{"p50": short, "p99": short, "max": long}, {}]
    assert not {"lengths", "quantiles"} & written(SMALL).keys()


def test_samples_by_time_are_written_where_they_were_kept_apart() -> None:
    stacks = SMALL.samples[0].locations, SMALL.samples[1].locations
    slices = WaitSlices()
    for index, ns in enumerate((1_000, 50_000_000)):
        lengths = WaitHistogram.of([ns, ns])
        part = Sample(stacks[index], (3, 3 * ns), lengths=lengths)
        slices.add(replace(SMALL, samples=(part,)), 100.0 + index, 101.0 + index)
    samples = [
        Sample(stack, (3, 3 * ns), lengths=WaitHistogram.of([ns, ns]))
        for stack, ns in zip(stacks, (1_000, 50_000_000), strict=True)
    ]
    found = written(replace(SMALL, samples=tuple(samples), slices=slices))["slices"]
    assert found["times"] == [[100.0, 101.0], [101.0, 102.0]]
    (short, long) = found["cells"]
    assert (short[:3], short[4:7]) == ([0, 960, 2], [0, -1, 1])
    assert short[3] + short[7] == 3_000
    assert (long[:3], long[4:7]) == ([1, 46_137_344, 2], [1, -1, 1])
    assert "slices" not in written(SMALL)


def test_where_waits_of_unknown_length_may_be_longer_a_quantile_has_no_upper_limit() -> None:
    known = replace(SMALL.samples[0], values=(10, 1000), lengths=WaitHistogram.of([100] * 5))
    found = written(replace(SMALL, samples=(known,)))
    assert found["quantiles"][0]["max"] == [100.0, 96.0, None]


def test_equal_frames_at_different_addresses_are_written_once() -> None:
    there = replace(WORK, address=WORK.address + 8)
    found = written(replace(SMALL, samples=(Sample((WORK, there), (1, 1)),)))
    assert found["stacks"] == [[0, 0]]
    assert len(found["frames"]) == 1


def test_labels_are_strings_or_numbers_with_a_unit() -> None:
    labels = (Label("tenant", "a"), Label("bytes", 512, "B"), Label("n", 0, "x"))
    found = written(replace(SMALL, samples=(Sample((WORK,), (1, 1), labels),)))
    strings = found["strings"]
    assert [(strings[key], value) for key, value in found["labels"][0]] == [
        ("tenant", strings.index("a")),
        ("bytes", {"n": 512, "u": "B"}),
        ("n", {"n": 0, "u": "x"}),
    ]


def test_addresses_without_a_name_are_named_by_their_file() -> None:
    nowhere = Location(0x10, None, ())
    found = written(replace(SMALL, samples=(Sample((UNKNOWN, nowhere), (1, 1)),)))
    names = [(name, mapping) for name, _, _, mapping, _ in frame_texts(found)]
    assert names == [("[unknown]", ""), ("[libc.so.6]", "/lib/libc.so.6")]


def test_a_cpu_profile_has_no_operations() -> None:
    cpu = CPU.make_profile(
        [Sample((LOCK, WORK), (1, 10))], [MAIN], period=10, time_ns=0, duration_ns=1
    )
    found = written(cpu)
    assert found["operations"] == [0]
    assert found["title"] == "CPU time of api"


def test_idle_waits_are_marked_with_their_rule() -> None:
    worker = Location(0x406000, MAIN, (Frame("main.(*Pool).worker", "/src/main.go", 40),))
    samples = (Sample((RECEIVE, worker), (5, 50)), Sample((LOCK, WORK), (1, 1)))
    found = written(replace(SMALL, samples=samples))
    first, second = found["idle"]
    assert second == -1
    assert set(found["idle_rules"][first]) == {"name", "reason"}
    assert len(found["idle_rules"]) == 1
    assert written(replace(SMALL, kind="mutex", samples=samples))["idle"] == [-1, -1]


def test_hostile_names_make_strict_json() -> None:
    odd = Location(0x404000, MAIN, (Frame(NASTY, NASTY, 1),))
    found = written(
        replace(
            SMALL,
            samples=(Sample((odd,), (1, 1), (Label(NASTY, NASTY),)),),
            comments=(NASTY,),
            mappings=(replace(MAIN, filename="/" + NASTY),),
        )
    )
    clean = NASTY.replace("\udcff", "\\udcff")
    assert frame_texts(found)[0][:2] == (clean, clean)
    assert found["comments"] == [clean]
    assert clean in found["strings"]
    json.dumps(found, ensure_ascii=False).encode("utf-8")


def test_losses_stand_beside_their_proportion() -> None:
    @dataclass(frozen=True)
    class Lossy:
        completeness: Completeness

        def __sub__(self, earlier: object) -> "Lossy":
            return self

        def __add__(self, later: object) -> "Lossy":
            return self

        def comments(self) -> tuple[str, ...]:
            return ()

    lossy = replace(SMALL, account=Lossy(Completeness(1, 99)))
    assert written(lossy)["incomplete"] == {"lost": 1, "share": 0.01, "alarming": True}
    assert "incomplete" not in written(replace(SMALL, account=Lossy(Completeness(0, 99))))
