"""Places that one wait in eight passes, in every Go version and build mode."""

from __future__ import annotations

from pathlib import Path

import pytest

from symbolizer import ElfFile, GoBinary
from symbolizer.codeanalysis import tracked_waits
from symbolizer.codeanalysis.tracked_waits import TrackedSite, TrackedWaitSites, tracked_wait_sites
from symbolizer.errors import GoTableError
from symbolizer.x86.disasm import Instruction, decode, reachable, successors
from tests.builds import NEWEST, pairs, versions
from tests.toolchains import toolchain

pytestmark = pytest.mark.machine

TARGETS = Path(__file__).parents[3] / "targets"
SET_STATUS = "runtime.casgstatus"
# Which place the compiler keeps of a copy of casgstatus, by the function that it is inlined into:
# the statuses are constants there.
INLINED = {
    "runtime.ready": {"ends"},
    "runtime.park_m": {"begins", "ends"},  # a park that fails ends at once
    "runtime.execute": {"runs"},
}


@pytest.mark.parametrize("build", pairs())
def test_each_copy_of_the_code_has_its_places_once(build: tuple[str, str]) -> None:
    program = opened(*build)
    sites = tracked_wait_sites(program)
    assert places(program, sites) == {
        name: {"begins", "ends", "runs"} if name == SET_STATUS else INLINED[name]
        for name in {SET_STATUS, *inlined_into(program)}
    }
    for kind in ("begins", "ends", "runs"):
        functions = [function_of(program, site) for site in getattr(sites, kind)]
        assert len(set(functions)) == len(functions)


def test_a_program_with_more_places_than_there_is_room_for_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = opened(NEWEST, "plain")
    sites = tracked_wait_sites(program)
    count = len(sites.begins) + len(sites.ends) + len(sites.runs)
    monkeypatch.setattr(tracked_waits, "MAX_PLACES", count - 1)
    with pytest.raises(GoTableError, match=f"more than {count - 1} places"):
        tracked_wait_sites(program)


@pytest.mark.parametrize("build", pairs())
def test_places_are_on_emulated_instructions(build: tuple[str, str]) -> None:
    program = opened(*build)
    sites = tracked_wait_sites(program)
    for site in (*sites.begins, *sites.ends, *sites.runs):
        code = instructions(program, site)
        assert code[site.pc].emulated
        if build[1] != "debug" and site not in sites.runs:
            assert code[site.pc].is_cheap


@pytest.mark.parametrize("build", pairs())
def test_untracked_goroutines_pass_no_place(build: tuple[str, str]) -> None:
    """Without the jump on g.tracking and what follows, no place is reached."""
    program = opened(*build)
    sites = tracked_wait_sites(program)
    for site in (*sites.begins, *sites.ends, *sites.runs):
        function = program.function_at(site.pc)
        assert function is not None
        code = instructions(program, site)
        flow = successors(code.values())
        tests = [pc for pc in code if compares_tracking(program, pc)]
        assert any(
            site.pc not in reachable(flow, [function.entry], without=code[pc].end) for pc in tests
        )


@pytest.mark.parametrize("build", pairs())
def test_newer_versions_note_when_waits_for_locks_began(build: tuple[str, str]) -> None:
    sites = tracked_wait_sites(opened(*build))
    is_old = build[0] == "1.19"
    assert sites.sudog_offset is not None
    assert sites.stamps_locks != is_old
    assert sites.begins_has_locks == (is_old or build[1] == "debug")


@pytest.mark.parametrize("minor", versions())
def test_libraries_and_race_detectors_have_the_places(minor: str, tmp_path: Path) -> None:
    library = tmp_path / "library.so"
    tools = toolchain(minor)
    modules = ("-buildvcs=false", "-modfile", module(minor, tmp_path), "-o", library)
    tools.go(
        *("build", "-buildmode=c-shared", *modules, "."),
        cwd=TARGETS / "golibrary",
        env={"CGO_ENABLED": "1"},
    )
    sites = tracked_wait_sites(GoBinary.open(ElfFile.open(library)))
    assert [len(kind) for kind in (sites.begins, sites.ends, sites.runs)] == [1, 1, 1]
    tools.go(
        *("build", "-race", *modules, "."),
        cwd=TARGETS / "frames",
        env={"CGO_ENABLED": "1"},
    )
    sites = tracked_wait_sites(GoBinary.open(ElfFile.open(library)))
    assert [len(kind) for kind in (sites.begins, sites.ends, sites.runs)] == [1, 1, 1]


def module(minor: str, folder: Path) -> Path:
    path = folder / "go.mod"
    path.write_text(f"module targets\n\ngo {minor}\n")
    return path


def opened(version: str, mode: str) -> GoBinary:
    return GoBinary.open(ElfFile.open(toolchain(version).build(TARGETS / "blockops", mode)))


def function_of(program: GoBinary, site: TrackedSite) -> str:
    function = program.function_at(site.pc)
    assert function is not None
    assert site.pc != function.entry
    return function.name


def places(program: GoBinary, sites: TrackedWaitSites) -> dict[str, set[str]]:
    kinds: dict[str, set[str]] = {}
    for kind in ("begins", "ends", "runs"):
        for site in getattr(sites, kind):
            kinds.setdefault(function_of(program, site), set()).add(kind)
    return kinds


def inlined_into(program: GoBinary) -> set[str]:
    names = set()
    for name in INLINED:
        for function in program.functions_named(name):
            frames = program.frames_many(range(function.entry, function.end, 3))
            if any(any(f.function == SET_STATUS for f in found) for found in frames.values()):
                names.add(name)
    return names


def instructions(program: GoBinary, site: TrackedSite) -> dict[int, Instruction]:
    function = program.function_at(site.pc)
    assert function is not None
    code = program.elf.read(function.entry, function.end - function.entry)
    return {step.address: step for step in decode(code, function.entry)}


def compares_tracking(program: GoBinary, pc: int) -> bool:
    """Whether it jumps behind `cmp byte [register + offset of tracking], 0`."""
    offset = program.layout.offset("g", "tracking")
    before = program.elf.read(pc - 16, 16)
    compared = offset.to_bytes(4, "little") + b"\x00"
    return program.elf.read(pc, 1)[0] in (0x74, 0x0F) and compared in before
