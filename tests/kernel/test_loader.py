"""Programs that do not compile or load, and the end of the compiler before the recording."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path

import psutil
import pytest

from ebpfprof.errors import AttachFailed, KernelUnsupported
from ebpfprof.kernel import compiler, perf_events, program_cache, program_source
from ebpfprof.kernel.compiler import Compilation
from ebpfprof.kernel.program import BpfProgram
from ebpfprof.kernel.program_source import ProgramSource
from tests.kernel.programs import program
from tests.kernel.samplerprogram import HZ, online_now, only_on, work_until
from tests.recorder import recording
from tests.targets_run import Target

NOTHING = "int nothing(struct pt_regs *ctx) { return 0; }"
MAPS = """
struct inner { u16 halves[3]; u16 last; };
struct value { u64 number; struct inner inner; };
struct part { u64 runs; u32 lasts; u32 none; };
BPF_ARRAY(values, struct value, 3);
BPF_ARRAY(numbers, u64, 4);
BPF_PERCPU_ARRAY(parts, struct part, 2);
int on_sample(void *ctx) {
    int second = 1, last = 4;
    struct value *value = values.lookup(&last);
    u64 *number = numbers.lookup(&second);
    struct part *part = parts.lookup(&second);
    if (!value || !number || !part)
        return 0;
    *number = value->number + value->inner.halves[1] + value->inner.last;
    part->runs++;
    part->lasts += value->inner.last;
    return 0;
}
"""


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Give each test an empty cache, so that it compiles."""
    monkeypatch.setattr(program_cache, "FOLDER", tmp_path / "cache")


def with_text(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(program_source, "program_text", {"test.bpf.c": text}.__getitem__)


def load(functions: tuple[str, ...] = ("nothing",)) -> None:
    with BpfProgram(ProgramSource("test.bpf.c", {}, functions)) as loaded:
        loaded.load()


def test_compiler_errors_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with_text(monkeypatch, "int nothing(struct pt_regs *ctx) { return no_such_name; }")
    with pytest.raises(KernelUnsupported, match=r"could not compile test\.bpf\.c") as caught:
        load()
    assert "undeclared identifier 'no_such_name'" in str(caught.value)


def test_verifier_errors_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with_text(monkeypatch, "int nothing(struct pt_regs *ctx) { return *(int *)8; }")
    with pytest.raises(AttachFailed, match="rejected the BPF program nothing") as caught:
        load()
    assert "invalid mem access" in str(caught.value)


def test_a_killed_compiler_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with_text(monkeypatch, NOTHING)
    others = psutil.Process().children()
    compilation = Compilation(ProgramSource("test.bpf.c", {}, ("nothing",)))
    (child,) = set(psutil.Process().children()) - set(others)
    child.kill()
    with pytest.raises(AttachFailed, match=r"ended before it was done \(status -9\)"):
        compilation.result()
    compilation.close()


def test_a_bug_in_the_compiler_process_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with_text(monkeypatch, NOTHING)
    with pytest.raises(RuntimeError, match=r"ebpfprof-bcc failed: .*no_such_function"):
        load(("no_such_function",))


def test_a_cancelled_compilation_leaves_nothing() -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    others = psutil.Process().children()
    compilation = Compilation(ProgramSource("waits/waits.bpf.c", {}))
    (child,) = set(psutil.Process().children()) - set(others)
    assert child.name() in (compiler.NAME, psutil.Process().name())  # not yet
    compilation.close()
    compilation.close()
    assert psutil.Process().children() == others
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_array_elements_are_written_and_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program sees what we write, and we read what it writes, on every processor."""
    with_text(monkeypatch, MAPS)
    source = ProgramSource("test.bpf.c", {}, perf_functions=("on_sample",))
    with BpfProgram(source) as loaded:
        loaded.load({"values": 5})
        loaded.maps["values"].set_struct(
            4, {"number": 700, "inner": {"halves": [1, 20], "last": 3}}
        )
        with pytest.raises(OSError, match="map values, element 5"):
            loaded.maps["values"].set_struct(5, {})
        assert loaded.maps["numbers"].numbers().tolist() == [0] * 4

        def runs() -> int:
            return loaded.maps["parts"].sum_at(1)["runs"]

        for cpu in online_now():
            event = perf_events.open_cpu_sampler(cpu, HZ, hardware=False)
            loaded.attach_sampler("on_sample", event, 0)
            perf_events.enable(event)
            with only_on(cpu):
                work_until(partial(lambda before: runs() > before, runs()))
            loaded.detach_sampler(event)
        first, second = (loaded.maps["parts"].sum_at(index) for index in (0, 1))
        assert first == {"runs": 0, "lasts": 0, "none": 0}
        assert second == {"runs": second["runs"], "lasts": 3 * second["runs"], "none": 0}
        assert loaded.maps["numbers"].numbers().tolist() == [0, 723, 0, 0]


def test_the_compiler_has_ended_while_recording(tmp_path: Path) -> None:
    profiles = ("--profile", "block,mutex,cpu")
    with (
        Target.start(program("pingpong")) as target,
        recording(target.pid, tmp_path, *profiles) as recorder,
    ):
        mapped = Path(f"/proc/{recorder.pid}/maps").read_text()
        names = [child.name() for child in psutil.Process(recorder.pid).children()]
        recorder.interrupt()
        recorder.finish()
    assert re.findall("libbcc|libLLVM|libclang", mapped) == []
    assert sorted(names) == ["ebpfprof-files", "ebpfprof-uprobe"]
