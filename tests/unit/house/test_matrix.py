"""The matrix of kernels: its data, the table of its results, what guests report."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.builds import BUILDS
from vagrant import box, kernels, machine, results
from vagrant.debian import DebianError, KernelFiles
from vagrant.kernels import MatrixError
from vagrant.results import Outcome, Run, with_tables

pytestmark = pytest.mark.machine

ROOT = Path(__file__).parents[3]
KERNEL = """
[[kernel]]
name = "6.1"
suite = "bookworm"
package = "linux-image-cloud-amd64"
expected = "works"
"""
SELECTION = """
[selection.quick]
tests = ["tests/kernel"]
passes = 3
slowness = 10
"""
MARKS = (
    "before\n<!-- Written by vagrant/matrix: begin -->\n{}"
    "<!-- Written by vagrant/matrix: end -->\nafter\n"
)


def run_of(*tests: Outcome, expected: int, **changes: str) -> Run:
    run = Run("6.1", "6.1.0-50", "QEMU", "quick", "2026-11-22", 61.4, expected, tests)
    return replace(run, **changes)  # type: ignore[arg-type]  # mypy can't know the fields


def read(text: str, folder: Path) -> kernels.Matrix:
    path = folder / "kernels.toml"
    path.write_text(text)
    return kernels.read(path)


def collected(words: Sequence[str]) -> set[str]:
    """What pytest makes of a selection, from the names and parameters in it."""
    return {word for word in words if (ROOT / word.split("::")[0]).exists()}


def test_the_matrix_of_this_checkout_is_valid() -> None:
    matrix = kernels.read()

    assert [kernel.expected for kernel in matrix.kernels.values()].count("refused") == 1
    assert len(matrix.kernels) >= 4
    assert {"refused", "smoke", "quick", "whole"} <= set(matrix.selections)
    for selection in matrix.selections.values():
        assert collected(selection.tests) == set(selection.tests)
        assert len(set(selection.tests)) == len(selection.tests)


def test_the_quick_selection_knows_every_version_and_every_mode() -> None:
    tests = [Outcome(name, "") for name in kernels.read().selections["quick"].tests]
    found = {test.build for test in tests if test.build}

    assert {version for version, _ in found} == {version for version, _ in BUILDS}
    assert {mode for _, mode in found} == {mode for _, mode in BUILDS}
    for kind in ("test_block", "test_mutex", "test_cpu"):
        assert any(kind in test.name for test in tests)


def test_the_selection_depends_on_the_expected_result(tmp_path: Path) -> None:
    old = KERNEL.replace("6.1", "5.10").replace("works", "refused")
    refused = SELECTION.replace("quick", "refused")
    matrix = read(KERNEL + old + SELECTION + refused, tmp_path)

    assert matrix.selection_for(matrix.kernels["6.1"], "quick").name == "quick"
    assert matrix.selection_for(matrix.kernels["5.10"], "quick").name == "refused"
    with pytest.raises(MatrixError, match="no selection 'long': choose one of quick"):
        matrix.selection_for(matrix.kernels["6.1"], "long")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "is no TOML"),
        ("[other]\n", "kernel and selection only, not other"),
        (KERNEL + KERNEL, "two kernels have the same name"),
        (KERNEL.replace("works", "maybe"), "kernel 6.1: expected must be one of works, refused"),
        (KERNEL + "size = 3\n", "kernel 6.1: it must have name, suite, package, expected"),
        (KERNEL.replace('"bookworm"', "12"), "kernel 6.1: suite is no"),
        (SELECTION.replace("3", "0"), "selection quick: .* must each be 1 or more"),
        (SELECTION.replace("passes = 3\n", ""), "selection quick: it must have tests, passes"),
    ],
)
def test_an_invalid_matrix_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(MatrixError, match=message):
        read(text, tmp_path)


@pytest.mark.parametrize(
    ("parameters", "build"),
    [
        ("[1.19-plain]", ("1.19", "plain")),
        ("[1.27-cgopie]", ("1.27", "cgopie")),
        ("[locks-1.22]", ("1.22", "plain")),
        ("[1.25]", ("1.25", "plain")),
        ("[block]", None),
        ("[11.25x]", None),
        ("", None),
    ],
)
def test_the_build_of_a_test_is_found_in_its_name(
    parameters: str, build: tuple[str, str] | None
) -> None:
    assert Outcome(f"tests/x.py::test_it{parameters}", "passed").build == build


def test_the_tables_show_outcomes_by_build() -> None:
    tests = (
        Outcome("x.py::a[1.27-pie]", "passed"),
        Outcome("x.py::b[1.27-pie]", "failed"),
        Outcome("x.py::c[1.19-plain]", "passed"),
        Outcome("x.py::d", "passed"),
    )
    good = run_of(*tests[2:], expected=2, kernel="6.12", selection="smoke")
    text = with_tables(MARKS.format("old\n"), {"6.1": run_of(*tests, expected=4), "6.12": good})

    assert "old" not in text
    assert text.startswith("before\n")
    assert text.endswith("end -->\nafter\n")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    head = "| kernel | release | machine | selection | passes | took | date |"
    assert rows[0] == head
    assert rows[2] == (
        "| 6.1 | 6.1.0-50 | QEMU | quick | 3 of 4 **(see below)** | 1 min 1 s | 2026-11-22 |"
    )
    assert "| 6.12 | 6.1.0-50 | QEMU | smoke | 2 of 2 | 1 min 1 s | 2026-11-22 |" in rows
    assert rows[4:] == [
        "| Go | build mode | 6.1 | 6.12 |",
        "| --- | --- | --- | --- |",
        "| 1.19 | plain | 1/1 | 1/1 |",
        "| 1.27 | pie | 1/2 |  |",
    ]
    assert "- 6.1: `x.py::b[1.27-pie]` failed" in text


def test_unexpected_outcomes_are_reported() -> None:
    passed = (Outcome("x.py::a", "passed"),)
    cases = {
        "Nothing failed.": run_of(*passed, expected=1),
        "- 6.1: 1 tests ran, 2 were expected": run_of(*passed, expected=2),
        "- 6.1: it stopped": run_of(*passed, expected=1, stopped="it stopped"),
        "- 6.1: `x.py::a` skipped": run_of(Outcome("x.py::a", "skipped"), expected=1),
    }
    for output, run in cases.items():
        assert output in results.tables([run]), output
        assert run.good == (output == "Nothing failed.")


def test_results_are_kept_in_the_order_of_the_matrix(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    run = run_of(Outcome("a", "passed"), Outcome("b", "failed"), expected=2)
    runs = {"6.1": run, "host": replace(run, kernel="host")}
    results.save(runs, ["host", "6.1"], path)

    assert results.load(path) == runs
    assert list(results.load(path)) == ["host", "6.1"]
    path.write_text('[{"kernel": "6.1"}]')
    with pytest.raises(results.ResultsError, match="is not as vagrant/matrix writes it"):
        results.load(path)


def test_the_document_shows_the_results_that_are_kept() -> None:
    text = results.DOCUMENT.read_text()

    assert with_tables(text, results.load()) == text
    with pytest.raises(results.ResultsError, match="lost its marks"):
        with_tables("# Kernels\n", {})


def test_kernel_modules_are_loaded_after_their_dependencies(tmp_path: Path) -> None:
    (tmp_path / "modules.dep").write_text(
        "k/virtio_blk.ko: k/virtio_ring.ko k/virtio.ko\nk/other.ko: k/virtio.ko\n"
        "k/virtio_ring.ko: k/virtio.ko\nk/virtio.ko:\n"
    )

    found = [path.name for path in machine._needed(tmp_path)]
    assert found == ["virtio.ko", "virtio_ring.ko", "virtio_blk.ko"]


GUEST = """
import os, sys, time
with open(sys.argv[1], "a") as port:
    port.write(sys.argv[2].replace("/", chr(10)))
if sys.argv[3] == "hang":
    time.sleep(600)
"""


class FakeMachine(machine.Machine):
    """Instead of QEMU a program that writes to the port, and then ends or hangs."""

    def command(self, *arguments: object, **_: object) -> list[str]:
        ports = arguments[2]
        assert isinstance(ports, list)
        with (ports[0].parent / "boots").open("a") as file:
            file.write("boot\n")
        text, ending = self.accelerator.split("|")
        return [sys.executable, "-c", GUEST, str(ports[1]), text, ending]


def boot(folder: Path, text: str, ending: str) -> tuple[int, list[machine.Report]]:
    seen: list[machine.Report] = []
    kernel = KernelFiles("6.1.0", folder / "image", folder)
    disks = machine.Disks(folder, folder, folder)
    chosen = FakeMachine(f"{text}|{ending}")
    status = machine.boot(chosen, kernel, folder, disks, folder, quiet_s=1.5, seen=seen.append)
    return status, seen


def test_reports_come_line_by_line(tmp_path: Path) -> None:
    text = '{"booted": "6.1.0"}/[ 1.0] a line of the kernel/{"test": "a"}/{"ended": 1}/'
    status, seen = boot(tmp_path, text, "hang")

    assert status == 1
    assert [next(iter(report)) for report in seen] == ["booted", "test", "ended"]


@pytest.mark.parametrize("ending", ["end", "hang"])
def test_a_guest_that_stops_in_the_middle_is_not_started_again(ending: str, tmp_path: Path) -> None:
    with pytest.raises(machine.MachineError, match="stopped too early"):
        boot(tmp_path, '{"booted": "6.1.0"}/{"test": "a"}/', ending)
    assert (tmp_path / "boots").read_text() == "boot\n"


def test_a_guest_that_never_boots_is_started_again(tmp_path: Path) -> None:
    with pytest.raises(machine.MachineError, match="did not boot"):
        boot(tmp_path, "", "end")
    assert (tmp_path / "boots").read_text() == "boot\n" * 3


def test_the_boot_sectors_of_a_box_are_laid_out() -> None:
    sectors = box.boot_sectors(b"B" * 512, b"CORE" * 1000, 3 << 30)
    kind, start, count = struct.unpack_from("<4xB3xII", sectors, 446)

    assert sectors[:440] == b"B" * 440
    assert (sectors[446], kind) == (0x80, 0x83)
    assert (start * 512, count * 512) == (1 << 20, 3 << 30)
    assert sectors[462:510] == bytes(48)
    assert sectors[510:512] == b"\x55\xaa"
    assert sectors[512:] == b"CORE" * 1000
    with pytest.raises(DebianError, match="does not fit before the partition"):
        box.boot_sectors(b"", bytes((1 << 20) - 511), 3 << 30)


def test_the_size_of_a_box_disk_is_rounded_up() -> None:
    sizes = [json.loads(box.metadata(size))["virtual_size"] for size in (5 << 30, (5 << 30) + 1)]

    assert sizes == [5, 6]


def test_a_box_has_the_checkout_where_vagrant_puts_it() -> None:
    text = (ROOT / "vagrant" / "Vagrantfile").read_text()

    assert f'synced_folder "..", "/{box.PLACE}"' in text
    assert f'"/{box.PLACE}/vagrant/provision.sh"' in text
