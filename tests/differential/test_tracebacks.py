"""Goroutines in the forms of net/http/pprof, from outside and by Go itself, of one moment.

The program stands still but for its main goroutine, which writes Go's own: that goroutine is
left out. Everything else is compared byte for byte, with all addresses and values.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from ebpfprof.export import pprof
from ebpfprof.goruntime.goroutines.all_goroutines import GoroutineScanner
from ebpfprof.process.process import Target as Process
from ebpfprof.profile.model import Profile
from ebpfprof.profilers.registry import kind_named
from ebpfprof.server import goroutines
from tests.builds import BUILDS, GENERIC, NEWEST, builds, in_full, versions
from tests.go_target import inspect, read
from tests.kernel.parked_program import poke
from tests.kernel.programs import TARGETS, program
from tests.targets_run import Target
from tests.toolchains import toolchain

MAIN = re.compile(r"main\.main[(+]")
LOOP = re.compile(r"(main\.spin\.func1\(\)\n\t\S+:)\d+ \+0x[0-9a-f]+")
MINUTE_NS = 60_000_000_000


@contextmanager
def still(path: Path, env: Mapping[str, str] | None = None) -> Iterator[Target]:
    """The program with all its goroutines parked; no collector moves their stacks."""
    with Target.start(path, env={"GOGC": "off", **(env or {})}) as target:
        yield target


def own(target: Target, debug: int, folder: Path) -> bytes:
    """What Go itself writes."""
    path = folder / f"go-{debug}"
    target.ask(f"{debug} {path}", "done")
    return path.read_bytes()


def without_main(text: bytes) -> list[str]:
    """The goroutines, or the stacks, of a text: what stands between empty lines."""
    records = text.decode("utf-8", "surrogateescape").removesuffix("\n").split("\n\n")
    kept = [record for record in records if not MAIN.search(record)]
    assert len(records) - len(kept) == 1, "the main goroutine"
    return kept


def stacks(profile: Profile) -> Counter[tuple[object, ...]]:
    """How many goroutines have each stack and labels; bytes that are no UTF-8 are left out."""
    found = Counter[tuple[object, ...]]()
    for sample in profile.samples:
        labels = tuple(sorted((label.key, label.value) for label in sample.labels))
        labels = tuple(each for each in labels if each[0] != "bytes")
        if all(frame.function != "main.main" for frame in sample.frames):
            found[sample.locations, labels] += sample.values[0]
    return found


BUBBLES, SECRETS = "GOEXPERIMENT=synctest", "GOEXPERIMENT=runtimesecret"
OF_EXPERIMENTS = {BUBBLES: b", synctest group ", SECRETS: b"runtime/secret.Do("}
# Of each there is one at least in the texts of every version.
MARKS = (
    *("goroutine ", "[IO wait]", "[syscall", ", locked to thread]", "[chan receive (nil chan)]"),
    *("panic({0x", "{{0x", "main.dead(0x", "main.recurseInlined(0x", "[...]("),
)
MARKS_OF_TEXT = ("# labels: {}", '# labels: {"a":"1", "b":"2", "c":"3"}', "main.recovered.func1+0x")


@pytest.mark.parametrize(
    ("version", "mode"),
    [
        *builds(*(b for b in BUILDS if b[0] in GENERIC)),
        *in_full(("1.24", BUBBLES), (NEWEST, SECRETS)),
    ],
)
def test_the_forms_equal_gos(version: str, mode: str, tmp_path: Path) -> None:
    with still(program("tracebacks", version, mode)) as target:
        pid = target.pid
        traceback, text = read(pid, goroutines.traceback), read(pid, goroutines.text)
        profile = read(pid, goroutines.profile, kind_named("goroutine"))
        count = read(pid, goroutines.count)
        gos = {debug: own(target, debug, tmp_path) for debug in (0, 1, 2)}
        gos[1] = gos[1].replace(b"\\u007f", b"\\x7f")  # as strconv.Quote of Go 1.18 has it
        again = read(pid, goroutines.traceback)
    assert without_main(again) == without_main(traceback), "it has not stood still"
    assert without_main(traceback) == without_main(gos[2])
    assert without_main(text) == without_main(gos[1])
    for mark in MARKS:
        assert mark in gos[2].decode("latin-1"), mark
    for mark in MARKS_OF_TEXT:
        assert mark in gos[1].decode("latin-1"), mark
    is_old = version in ("1.18", "1.19", "1.20")
    elided = "additional frames elided" if is_old else "frames elided..."
    assert traceback.count(elided.encode()) > (0 if is_old else 4)
    assert (b"(...)\n" in traceback) == (mode != "debug")
    is_dead = re.search(rb"main\.dead\(0x\w+\?, 0x\w+\?, 0x\w+\?\)", traceback) is not None
    assert is_dead == (mode != "debug")

    theirs = pprof.decode(gos[0])
    ours = pprof.decode(pprof.encode(profile))
    assert stacks(ours) == stacks(theirs)
    assert ours.mappings[0] == theirs.mappings[0]
    assert (ours.sample_types, ours.period_type, ours.period) == (
        *(theirs.sample_types, theirs.period_type, theirs.period),
    )
    # One of finalizers counts as the runtime's, also while it runs one, in runtime.NumGoroutine.
    assert count == traceback.count(b"\ngoroutine ")
    assert OF_EXPERIMENTS.get(mode, b"") in traceback


@pytest.mark.parametrize(
    ("version", "setting", "shown"),
    [
        *in_full(
            ("1.25", "1", ""),
            ("1.26", "0", ""),
            ("1.26", "1", ' labels:{"a": "1", "b": "2", "c": "3"}]:'),
            ("1.26", "1", ' labels:{"bytes": "\\ufffd\\ufffd ok \\ufffd\\ufffd"}]:'),
        ),
        ("1.27", "1", "] {a: 1, b: 2, c: 3}:"),
        ("1.27", "1", '] {bytes: "\\xff\\xfe ok \\xe2\\x82"}:'),
        ("1.27", "1,tracebacklabels=0", ""),
        ("1.27", "2", ""),
        ("1.27", "junk", "] {a: 1, b: 2, c: 3}:"),
    ],
)
def test_labels_are_shown_where_go_shows_them(
    version: str, setting: str, shown: str, tmp_path: Path
) -> None:
    env = {"GODEBUG": f"tracebacklabels={setting}"}
    with still(program("tracebacks", version), env) as target:
        go, ours = own(target, 2, tmp_path), read(target.pid, goroutines.traceback)
    assert without_main(ours) == without_main(go)
    headers = [line for line in ours.decode().splitlines() if line.startswith("goroutine ")]
    has_labels = any("bytes" in line for line in headers)
    assert has_labels == bool(shown)
    assert any(shown in line for line in headers)


def test_the_program_itself_may_say_that_labels_are_not_shown(tmp_path: Path) -> None:
    """As a go.mod of Go 1.26 does: the linker notes the setting."""
    path = toolchain("1.27").build(TARGETS / "tracebacks", tags=["nolabels"])
    for setting, is_shown in (("", False), ("tracebacklabels=1", True)):
        with still(path, {"GODEBUG": setting}) as target:
            go, ours = own(target, 2, tmp_path), read(target.pid, goroutines.traceback)
        assert without_main(ours) == without_main(go)
        assert (b"{a: 1, b: 2, c: 3}" in ours) == is_shown


@pytest.mark.parametrize("version", versions("1.19", NEWEST))
def test_minutes_count_from_where_the_collector_saw_the_wait(version: str, tmp_path: Path) -> None:
    with still(program("tracebacks", version)) as target, Process(target.pid) as process:
        go = inspect(process)
        scanner = GoroutineScanner(go)
        found = scanner.scan()
        offset = go.binary.layout.offset("g", "waitsince")
        waits = ("sleep", "IO wait", "syscall", "chan receive", "select")
        for minutes, state in enumerate(waits, start=1):
            # Half a minute more, so that it is the same for both samples.
            since_ns = found.read_ns - minutes * MINUTE_NS - MINUTE_NS // 2
            for goroutine in found.goroutines:  # one in a bubble of synctest has more words
                if goroutine.state == state:
                    poke(target.pid, goroutine.address + offset, since_ns)
        ours, gos = read(target.pid, goroutines.traceback), own(target, 2, tmp_path)
    assert without_main(ours) == without_main(gos)
    for minutes, state in enumerate(waits, start=1):
        assert f"[{state}, {minutes} minutes".encode() in ours


def test_goroutines_that_run_are_reported_without_a_stack() -> None:
    """Nothing takes its processor from it."""
    with still(program("tracebacks"), {"GODEBUG": "asyncpreemptoff=1"}) as target:
        before = read(target.pid, goroutines.count)
        target.ask("spin", "done")
        traceback = read(target.pid, goroutines.traceback).decode()
        text = read(target.pid, goroutines.text).decode()
        profile = read(target.pid, goroutines.profile, kind_named("goroutine"))
        assert read(target.pid, goroutines.count) == before + 1
        target.kill()
    (record,) = [each for each in traceback.split("\n\n") if " [running]:\n" in each]
    assert re.fullmatch(
        r"goroutine \d+ \[running\]:\n"
        r"\tgoroutine running on other thread; stack unavailable\n"
        r"created by main\.spin in goroutine 1\n"
        r"\t.*/tracebacks/main\.go:\d+ \+0x[0-9a-f]+\n?",
        record,
    )
    (stack,) = [each for each in text.split("\n\n") if "# running" in each]
    assert re.fullmatch(
        r"1 @ 0x[0-9a-f]+\n# running: no stack\n"
        r"#\t0x[0-9a-f]+\tmain\.spin\.func1\+0x0\t/.*/tracebacks/main\.go:\d+",
        stack,
    )
    (sample,) = [each for each in profile.samples if each.frames[0].function.startswith("[")]
    assert [frame.function for frame in sample.frames] == ["[running: no stack]", "main.spin.func1"]
    assert profile.comments == (
        "1 goroutines were running: a running goroutine has no stack to read",
    )


@pytest.mark.parametrize("version", versions(*GENERIC))
def test_preempted_goroutines_are_shown_where_they_were_interrupted(
    version: str, tmp_path: Path
) -> None:
    """Two goroutines take turns, each in a loop of one instruction: one of them is preempted."""

    def spinning(text: bytes) -> dict[str, str]:
        """Those with a stack, by the number of the goroutine."""
        found = (each for each in without_main(text) if "main.spin.func1()\n" in each)
        # Where in its loop each was interrupted, chance decides.
        return {each.split()[1]: LOOP.sub(r"\1", each) for each in found}

    with still(program("tracebacks", version), {"GOMAXPROCS": "1"}) as target:
        target.ask("spin", "done")
        target.ask("spin", "done")
        gos = spinning(own(target, 2, tmp_path))
        ours: dict[str, str] = {}
        while len(ours) < 2:
            ours |= spinning(read(target.pid, goroutines.traceback))
        target.kill()  # its main goroutine would have to wait for its turns
    assert len(gos) == 2
    assert ours == gos
    assert all(" [runnable]:\n" in each for each in ours.values())
