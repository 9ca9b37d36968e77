"""The formats: what each shows of a profile, and that no name breaks out of it."""

import json
import re
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from ebpfprof.errors import InvalidProfile
from ebpfprof.export import folded, formats
from ebpfprof.profile.model import Frame, Location, Profile, Sample
from tests.foreign import speedscope_schema
from tests.unit.export.profiles import CPU, HEAP, IDLE, NASTY, nasty
from tests.unit.export.small_profile import LOCK, MAIN, SMALL, WORK


def lines(profile: Profile, name: str, **options: Any) -> list[str]:  # noqa: ANN401 - options of a format
    return formats.encode(profile, name, **options).decode().splitlines()


# The table


def test_what_a_format_takes_has_a_writer() -> None:
    assert set(formats.DIFFERENCES) < set(formats.PROFILES)
    assert {*formats.PROFILES, *formats.TIMELINES} == set(formats.FORMATS)
    with pytest.raises(ValueError, match="A profile cannot be written as go"):
        formats.encode(SMALL, "go")
    with pytest.raises(ValueError, match="A difference cannot be written as speedscope"):
        formats.encode_difference(SMALL, SMALL, "speedscope")


def test_the_name_of_a_file_has_one_format() -> None:
    assert [name for name in formats.PROFILES if not formats.FORMATS[name].is_text] == [
        "pprof",
        "pgo",
    ]
    assert formats.FORMATS["pprof"].suffix == ".pb.gz"
    endings = [ending for made in formats.FORMATS.values() for ending in made.endings]
    assert len(set(endings)) == len(endings)
    for made in formats.FORMATS.values():
        assert {formats.of_name(f"shop{ending}") for ending in made.endings} == {made.name}


@pytest.mark.parametrize("name", formats.PROFILES)
@pytest.mark.parametrize("profile", [SMALL, CPU, HEAP, replace(SMALL, samples=())])
def test_the_same_profile_gives_the_same_bytes(profile: Profile, name: str) -> None:
    if formats.FORMATS[name].needs_type:
        profile = CPU
    assert formats.encode(profile, name) == formats.encode(profile, name)


@pytest.mark.parametrize("option", [{"hide_idle": True}, {"sample_type": "delay"}])
def test_options_that_omit_samples_are_refused_for_pprof(
    option: dict[str, Any],
) -> None:
    with pytest.raises(ValueError, match="always holds everything"):
        formats.encode(SMALL, "pprof", **option)
    with pytest.raises(ValueError, match="always holds everything"):
        formats.encode_difference(SMALL, SMALL, "pprof", **option)


@pytest.mark.parametrize(
    "name", [name for name in formats.PROFILES if not formats.FORMATS[name].is_complete]
)
def test_an_unknown_sample_type_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidProfile, match="no sample type 'cpu'; it has contentions, delay"):
        formats.encode(SMALL, name, sample_type="cpu")


# Idle waits


@pytest.mark.parametrize("name", ["folded", "speedscope", "json", "text"])
def test_formats_have_idle_waits_unless_hidden(name: str) -> None:
    assert b"worker" in formats.encode(IDLE, name)
    hidden = formats.encode(IDLE, name, hide_idle=True)
    assert b"main.(*Pool).worker" not in hidden
    assert b"Mutex" in hidden


def test_formats_say_how_much_was_hidden() -> None:
    output = "Hidden as idle: 700 ns in 7 waits"
    assert any(line.startswith(output) for line in lines(IDLE, "text", hide_idle=True))
    comments = json.loads(formats.encode(IDLE, "json", hide_idle=True))["comments"]
    assert any(comment.startswith(output) for comment in comments)


def test_where_all_is_idle_nothing_says_that_nothing_was_recorded() -> None:
    idle = replace(IDLE, samples=IDLE.samples[:1])
    found = lines(idle, "text", hide_idle=True)
    assert found[0] == "Only idle waits were recorded."
    assert found[3] == "All that was recorded is idle."
    assert found[4].startswith("Hidden as idle: 700 ns in 7 waits")
    assert found[4].endswith("; --show-idle shows them")
    assert not any("Nothing was recorded" in line for line in found)


# Folded stacks


def test_folded_stacks_are_added_up_by_name() -> None:
    there = replace(WORK, address=WORK.address + 8, frames=(Frame("main.work", "/src/a.go", 99),))
    samples = (*CPU.samples, Sample((LOCK, there), (1, 5)))
    assert lines(replace(CPU, samples=samples), "folded") == [
        "[libc.so.6] 10",
        "main.work 10",
        "main.work;sync.(*RWMutex).Lock;sync.(*Mutex).Lock 35",
    ]
    assert lines(CPU, "folded", sample_type="samples")[-1].endswith(" 3")


def test_names_in_folded_stacks_hold_no_separators() -> None:
    data = formats.encode(nasty(), "folded")
    (line,) = data.decode("utf-8").split("\n")[:-1]
    stack, _, value = line.rpartition(" ")
    assert value == "1"
    assert len(stack.split(";")) == 2
    assert line.isprintable()
    assert r"\n" in stack


def test_folded_stacks_without_frames_are_unknown_and_zeros_left_out() -> None:
    samples = (Sample((), (1, 4)), Sample((WORK,), (1, 0)))
    assert lines(replace(SMALL, samples=samples), "folded") == ["[unknown] 4"]


@pytest.mark.parametrize("name", ["folded", "speedscope"])
def test_formats_without_negative_values_refuse_them(name: str) -> None:
    negative = replace(SMALL, samples=(Sample((WORK,), (-1, -4)),))
    with pytest.raises(InvalidProfile, match="negative"):
        formats.encode(negative, name)


def test_folded_stacks_beyond_the_largest_size_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folded, "MAX_BYTES", 60)
    with pytest.raises(InvalidProfile, match="larger than"):
        formats.encode(SMALL, "folded")


# Speedscope


@pytest.mark.parametrize("profile", [SMALL, CPU, HEAP, nasty(), replace(SMALL, samples=())])
def test_speedscope_files_are_valid_by_its_own_schema(profile: Profile) -> None:
    found = json.loads(formats.encode(profile, "speedscope"))
    schema = speedscope_schema()
    jsonschema.validate(found, schema)
    assert found["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    known = schema["definitions"]["FileFormat.SampledProfile"]["properties"].keys()
    for each in found["profiles"]:
        assert each.keys() <= known
        assert len(each["samples"]) == len(each["weights"])
        assert sum(each["weights"]) == each["endValue"] - each["startValue"]
        assert all(n < len(found["shared"]["frames"]) for stack in each["samples"] for n in stack)


def test_speedscope_has_each_value_type_and_inlined_frames() -> None:
    found = json.loads(formats.encode(HEAP, "speedscope", sample_type="alloc_space"))
    assert [(each["name"], each["unit"], each["endValue"]) for each in found["profiles"]] == [
        ("alloc_objects", "none", 6),
        ("alloc_space", "bytes", 5120),
        ("inuse_objects", "none", 2),
        ("inuse_space", "bytes", 2 << 20),
    ]
    assert found["activeProfileIndex"] == 1
    frames = found["shared"]["frames"]
    deepest = max(found["profiles"][3]["samples"], key=len)
    assert [frames[number] for number in deepest] == [
        {"name": "main.work", "file": "/src/main.go", "line": 12},
        {"name": "sync.(*RWMutex).Lock", "file": "/go/sync/rwmutex.go", "line": 146},
        {"name": "sync.(*Mutex).Lock", "file": "/go/sync/mutex.go", "line": 46},
    ]
    assert json.loads(formats.encode(SMALL, "speedscope"))["activeProfileIndex"] == 1
    assert json.loads(formats.encode(SMALL, "speedscope"))["profiles"][1]["unit"] == "nanoseconds"


# Text


def test_waits_as_text() -> None:
    found = lines(SMALL, "text")
    assert found[:3] == [
        "100 % of waiting: RWMutex.Lock in main.work (main.go:12), 4.50 us in 1 wait.",
        "",
        "Waits of api in 30.0 s:",
    ]
    assert re.sub(r" +", " ", found[4]) == "4.50 us 93.8% 1 4.50 us RWMutex.Lock main.work"
    assert found[-1] == "every event was recorded"


def test_a_heap_profile_as_text() -> None:
    found = [re.sub(r" +", " ", line).strip() for line in lines(HEAP, "text")]
    assert found == [
        "Profile of api in 1.00 s:",
        "Inuse space Share Cum Share Function",
        "1.00 MiB 50.0% 2.00 MiB 100.0% main.work",
        "1.00 MiB 50.0% 1.00 MiB 50.0% sync.(*Mutex).Lock",
        "2.00 MiB in all",
    ]
    words = [line.split() for line in lines(HEAP, "text", sample_type="alloc_objects")]
    assert words[1:] == [
        ["Alloc", "objects", "Share", "Cum", "Share", "Function"],
        ["6", "100.0%", "6", "100.0%", "main.work"],
        ["6", "in", "all"],
    ]


def test_a_cpu_profile_as_text() -> None:
    found = [re.sub(r" +", " ", line).strip() for line in lines(CPU, "text")]
    assert found == [
        "60 % of CPU time: sync.(*Mutex).Lock itself, called in main.work (main.go:12), 30 ns.",
        "",
        "CPU time of api in 1.00 s:",
        "CPU Share Cum Share Function",
        "30 ns 60.0% 30 ns 60.0% sync.(*Mutex).Lock",
        "10 ns 20.0% 40 ns 80.0% main.work",
        "10 ns 20.0% 10 ns 20.0% [unknown]",
        "50 ns in all",
    ]


def test_functions_are_limited_and_the_rest_is_counted() -> None:
    samples = tuple(
        Sample((Location(0x400000 + n, MAIN, (Frame(f"f{n}", "", 0),)),), (1, n + 1))
        for n in range(20)
    )
    found = lines(replace(CPU, samples=samples), "text")
    assert len(found) == 2 + 2 + 15 + 1
    assert found[-1] == "210 ns in all; 5 more functions"


@pytest.mark.parametrize("kind", ["block", "mutex", "cpu", "open", ""])
@pytest.mark.parametrize("sample_type", [None, NASTY])
def test_no_name_controls_a_terminal(kind: str, sample_type: str | None) -> None:
    text = formats.encode(nasty(kind), "text", sample_type=sample_type).decode()
    text += formats.encode_difference(
        nasty(kind), replace(nasty(kind), samples=()), "text", sample_type=sample_type
    ).decode()
    assert text.isascii()
    assert text.replace("\n", "").isprintable()
