"""The compiled programs of a package: found by what they are made of, and checked."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from ebpfprof.errors import AttachFailed
from ebpfprof.kernel import packaged_programs, program_source, sources
from ebpfprof.kernel.program_source import ProgramSource, ready, with_numbers
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.waits import collector
from ebpfprof.profilers.waits.rows import WaitsConfig
from tests.tools import compile_programs

SOURCE = ProgramSource("test.bpf.c", {"NUMBER": 1}, ("nothing",))
MADE = {"maps": [], "functions": {"nothing": "b700000000000000"}, "license": "GPL"}
LOAD = bytes.fromhex("1801000001000000 00000000646c7461")


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(packaged_programs, "folder", lambda: tmp_path / "compiled")
    monkeypatch.setattr(program_source, "program_text", lambda name: "the C")
    files = {packaged_programs.file_name(SOURCE): packaged_programs.encoded(MADE)}
    compile_programs.write(tmp_path / "compiled", files, "BCC 1")
    return tmp_path / "compiled"


def test_a_packaged_program_is_found(folder: Path) -> None:
    found = packaged_programs.find(SOURCE)
    assert found is not None
    assert found.functions == {"nothing": bytes.fromhex("b700000000000000")}
    assert (packaged_programs.check(), packaged_programs.compiler()) == (1, "BCC 1")


def test_another_program_is_not_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert packaged_programs.find(ProgramSource("test.bpf.c", {"NUMBER": 2}, ("nothing",))) is None
    assert packaged_programs.find(ProgramSource("test.bpf.c", {"NUMBER": 1}, ("other",))) is None
    monkeypatch.setattr(program_source, "program_text", lambda name: "changed C")
    assert packaged_programs.find(SOURCE) is None


def test_a_checkout_has_no_compiled_programs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(packaged_programs, "folder", lambda: tmp_path / "compiled")
    assert packaged_programs.find(SOURCE) is None
    assert packaged_programs.check() == 0


@pytest.mark.parametrize("content", [b"", b"other", None])
def test_a_damaged_file_is_not_loaded(content: bytes | None, folder: Path) -> None:
    path = folder / packaged_programs.file_name(SOURCE)
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    for read in (lambda: packaged_programs.find(SOURCE), packaged_programs.check):
        with pytest.raises(AttachFailed, match="Install ebpfprof again"):
            read()


def test_a_file_that_holds_no_program_is_reported(folder: Path) -> None:
    compile_programs.write(folder, {packaged_programs.file_name(SOURCE): b"no program"}, "BCC 1")
    with pytest.raises(AttachFailed, match="has no BPF program"):
        packaged_programs.find(SOURCE)


def test_numbers_replace_only_their_marks() -> None:
    ordinary = bytes.fromhex("1801000001000000 0000000000000000 b70100006c647461")
    numbers = (7, 0x1122334455667788)
    assert with_numbers(ordinary + LOAD, numbers) == ordinary + bytes.fromhex(
        "1801000088776655 0000000044332211"
    )
    with pytest.raises(AttachFailed, match="no number 1"):
        with_numbers(LOAD, (7,))


def test_a_release_has_the_waits_programs_of_all_options() -> None:
    made = list(collector.sources())
    flags = ("by_lock", "lock_labels", "runtime_locks", "earlier_waits", "one_in_eight", "wakers")
    kinds = [("block",), ("mutex",), ("block", "mutex"), ("block", "mutex", "wakers"), ("wakers",)]
    kinds += [("runqueue",), ("block", "runqueue")]
    for names, labels, overhead, rate in itertools.product(
        kinds, [None, (), ("user",)], [0, 1], [1, 10_000]
    ):
        for flag in ("", *(flags if "mutex" in names else flags[3:])):
            chosen: dict[str, Any] = {flag: True} if flag else {}
            options = Options(
                kinds=names, labels=labels, max_overhead=overhead, block_rate_ns=rate, **chosen
            )
            assert collector.source(WaitsConfig.of(options)) in made, options


def test_loops_of_older_kernels_keep_their_ways_out() -> None:
    """may_goto becomes a jump to the same place that is never taken, and counters begin with 0."""
    code = bytes.fromhex("1801000000000000 00000000646c7461 e500050000000000")
    new = ready(code, lambda index: index, (), may_goto=True)
    old = ready(code, lambda index: index, (), may_goto=False)
    assert new.hex() == "18010000ffffffff" + "00000000ffffffff" + "e500050000000000"
    assert old.hex() == "1801000000000000" + "0000000000000000" + "150a050000000000"


@pytest.mark.parametrize(
    "name", ["waits/waits.bpf.c", "cpu/cpu.bpf.c", "heap/allocations.bpf.c", "trace/trace.bpf.c"]
)
def test_each_map_with_rows_of_targets_gets_as_many(name: str) -> None:
    text = re.sub(r"/\*.*?\*/", "", sources.program_text(name), flags=re.DOTALL)
    uses = set(re.findall(r".*\bMAX_(?:TARGETS|SITES)\b.*", text))
    assert len(uses) == len(program_source.sized_maps(name)) > 2, uses
