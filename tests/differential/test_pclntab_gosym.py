"""The symbolizer against Go itself: debug/gosym for every function, the runtime for inlining."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from symbolizer import ElfFile, Frame, FuncRole, GoBinary
from tests.builds import GENERIC, VERSIONS, builds
from tests.toolchains import MINORS, toolchain

TARGETS: Final = Path(__file__).resolve().parents[1] / "targets"
STEPS: Final = 8
NEWEST: Final = MINORS[-1]

# Versions whose tables differ, and every way to link, for the newest.
LINKED: Final = [
    *((minor, "plain") for minor in GENERIC),
    *((NEWEST, mode) for mode in ("stripped", "trimpath", "pie", "cgo", "cgopie")),
    ("1.25", "pie"),
    ("1.25", "cgo"),
]

# Marks that the linker sets. They have no line table, and debug/gosym reads another's in its place.
WITHOUT_LINES: Final = {"go:textfipsstart", "go:textfipsend"}


@dataclass
class Expected:
    """A function as debug/gosym sees it: where it is, and lines as (address, line, file)."""

    entry: int
    end: int
    name: str
    lines: list[tuple[int, int, str]]


@pytest.mark.full
@pytest.mark.parametrize(("minor", "mode"), builds(*LINKED))
def test_functions_equal_those_of_debug_gosym(minor: str, mode: str) -> None:
    program = toolchain(minor).build(TARGETS / "stdlib", mode)
    with ElfFile.open(program) as elf:
        binary = GoBinary.open(elf)
        expected = list(gosym(program, binary.text_start))
        functions = list(binary.functions())
        assert [(f.entry, f.end, f.name) for f in functions] == [
            (e.entry, e.end, e.name) for e in expected
        ]
        frames = binary.frames_many(pc for function in expected for pc, _, _ in function.lines)
    assert len(functions) > 9_000
    differences = [
        (function.name, hex(pc), (line, file), frames[pc])
        for function in expected
        for pc, line, file in function.lines
        if (frames[pc][0].line, frames[pc][0].file)
        != ((0, "?") if function.name in WITHOUT_LINES else (line, file))
        or frames[pc][-1].function != function.name
    ]
    assert differences == []


@pytest.mark.parametrize(
    ("minor", "mode"),
    builds(*((minor, "plain") for minor in MINORS), ("1.22", "pgo"), (NEWEST, "pgo")),
)
def test_frames_equal_those_of_the_runtime(minor: str, mode: str) -> None:
    program = toolchain(minor).build(TARGETS / "frames", mode)
    with ElfFile.open(program) as elf:
        binary = GoBinary.open(elf)
        # The runtime looks a return address up: it must lie in the same function.
        pcs = [pc for f in binary.functions() for pc in range(f.entry, f.end - 1, 5)]
        frames = binary.frames_many(pcs)
        first = next(binary.functions()).name
    # Go up to 1.20 keeps the physical function even if it is a wrapper.
    keep_last = minor in VERSIONS[: VERSIONS.index("1.21")]
    ours = {pc: profiled(frames[pc], keep_last=keep_last) for pc in pcs}
    if minor == "1.20":  # whose runtime.Frame does not say where functions begin
        ours = {pc: [(*line[:3], 0) for line in lines] for pc, lines in ours.items()}
    # Go's runtime takes the first name of its table for none.
    theirs = {
        pc: [(name or first, *rest) for name, *rest in frames]
        for pc, frames in runtime_frames(program, pcs)
    }
    differences = [(hex(pc), ours[pc], theirs[pc]) for pc in pcs if ours[pc] != theirs[pc]]
    assert differences == []
    assert max(len(frames) for frames in ours.values()) >= 4


@pytest.mark.full
def test_frames_do_not_depend_on_stripping_and_linking() -> None:
    answers = set()
    for mode in ("plain", "stripped"):
        with ElfFile.open(toolchain(NEWEST).build(TARGETS / "stdlib", mode)) as elf:
            binary = GoBinary.open(elf)
            functions = list(binary.functions())
            frames = binary.frames_many((f.entry + f.end) // 2 for f in functions)
            answers.add((tuple(functions), tuple(frames.values())))
    assert len(answers) == 1


def gosym(program: Path, text_start: int) -> Iterator[Expected]:
    """What tests/targets/gosym, built with the newest Go, prints of a program."""
    reader = toolchain(NEWEST).build(TARGETS / "gosym")
    output = subprocess.run(
        [reader, program, f"{text_start:x}", str(STEPS)], check=True, capture_output=True, text=True
    ).stdout
    function: Expected | None = None
    for line in output.splitlines():
        kind, rest = line.split(" ", 1)
        if kind == "F":
            if function:
                yield function
            entry, end, name = rest.split(" ", 2)
            function = Expected(int(entry, 16), int(end, 16), name, [])
        else:
            assert function
            pc, number, file = rest.split(" ", 2)
            function.lines.append((int(pc, 16), max(0, int(number)), file or "?"))
    if function:
        yield function


Line = tuple[str, str, int, int]


def runtime_frames(program: Path, pcs: list[int]) -> Iterator[tuple[int, list[Line]]]:
    """What tests/targets/frames prints of its own addresses."""
    asked = "".join(f"{pc:x}\n" for pc in pcs)
    output = subprocess.run(
        [program], input=asked, check=True, capture_output=True, text=True
    ).stdout
    for block in output.split("PC ")[1:]:
        pc, *lines = block.splitlines()
        frames = []
        for line in lines:
            function, file, number, start_line = line.split("\t")
            frames.append((function, file, int(number), int(start_line)))
        yield int(pc, 16), frames


def profiled(frames: tuple[Frame, ...], *, keep_last: bool) -> list[Line]:
    """Frames as Go's profiles have them: of several, without the wrappers that Go leaves out."""
    kept = []
    called = FuncRole.NORMAL
    for frame in frames:
        elided = len(frames) > 1 and frame.role is FuncRole.WRAPPER and called.elides_wrapper
        if not elided or (keep_last and frame is frames[-1]):
            kept.append(frame)
        called = frame.role
    return [(f.function, f.file, f.line, f.start_line) for f in kept]
