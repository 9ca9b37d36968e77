"""Go runtimes that are not in the executable: libraries for C, and programs that ld.so started.

Each is recorded beside Go's own profilers in the same run.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.export import pprof
from ebpfprof.profile.model import Profile
from tests.builds import NEWEST, in_full
from tests.differential import mutexes, test_block
from tests.differential.stacks import delay_differences, differences
from tests.differential.test_mutex import assert_counts_agree
from tests.kernel.kernel_state import has_probes
from tests.kernel.programs import program
from tests.kernel.verbs import verb
from tests.odd_targets.golibraries import (
    archive_in_c,
    archive_in_fixed_c,
    archive_in_python,
    by_the_loader,
    calling,
    copies,
    golibrary,
    pie_by_the_loader,
    shared_in_python,
)
from tests.recorder import EVERY_WAIT, event_count, only_profile, recording, run
from tests.server.serving import Server
from tests.targets_run import Command, Target

HOSTS = (archive_in_c, archive_in_fixed_c, archive_in_python, by_the_loader, pie_by_the_loader)
OLDER = ("1.17", "1.19", "1.20", "1.21", "1.22", "1.24", "1.26")
Host = Callable[[str, str, Path], Command]


@dataclass(frozen=True)
class Library:
    """A Python process with the target golibrary at work."""

    target: Target
    path: Path

    @property
    def pid(self) -> str:
        return str(self.target.pid)


@pytest.fixture(scope="module")
def library() -> Iterator[Library]:
    with calling(golibrary()) as target:
        target.ask("0 Work", "done")
        yield Library(target, golibrary())


def in_one_line(text: str) -> str:
    return " ".join(text.split())


def functions(profile: Profile) -> Counter[str]:
    """How many samples have each function."""
    return Counter(
        name
        for sample in profile.samples
        for name in {frame.function for at in sample.locations for frame in at.frames}
    )


@pytest.mark.target(
    "c-shared or c-archive in a Python or C process, a program started through ld.so",
    "everything; `run` has only the CPU profile unless the executable is Go",
)
@pytest.mark.parametrize(
    ("host", "version"),
    [
        (shared_in_python, NEWEST),
        *in_full(*((host, NEWEST) for host in HOSTS)),
        *in_full(*((shared_in_python, version) for version in OLDER)),
    ],
)
def test_waits_are_counted_as_by_go(host: Host, version: str, tmp_path: Path) -> None:
    ours, planned = test_block.compare(host("blockops", version, tmp_path), tmp_path)
    assert set(planned) > {"chanSend", "selectEither", "calledFromC"}
    for operation, count in planned.items():
        assert test_block.events_below(ours, operation) == count, operation


@pytest.mark.parametrize(
    ("host", "version"),
    [(archive_in_c, NEWEST), *in_full((shared_in_python, NEWEST), (by_the_loader, NEWEST))],
)
def test_releases_are_counted_as_by_go(host: Host, version: str, tmp_path: Path) -> None:
    command = host("mutexops", version, tmp_path)

    def wrong_in_a_run(folder: Path) -> dict[str, str]:
        run = mutexes.record(command, folder)
        assert set(run.planned) > {"mutexUnlock", "rwRelay", "calledFromC"}
        assert_counts_agree(run)
        return delay_differences(run.go, run.mutex)

    mutexes.agree_once(wrong_in_a_run, tmp_path)


def recorded(target: Target, number: int, rounds: int, folder: Path, *options: str) -> Profile:
    """The block profile of rounds in a library, which has the waits that Go counted."""
    own = folder / "go.prof"
    target.ask(f"{number} Profile", "done")
    with recording(target.pid, folder, *EVERY_WAIT, *options) as recorder:
        for library in range(2):
            target.ask(f"{library} Rounds {rounds if library == number else 7}", "done")
        recorder.interrupt()
        finished = recorder.finish()
    assert finished.code == ExitCode.OK, finished.stderr
    assert not has_probes(target.pid)
    target.ask(f"{number} Write block {own}", "done")
    ours = only_profile(folder)
    assert differences(pprof.decode(own.read_bytes(), kind="block"), ours) == []
    return ours


@pytest.mark.target(
    "several Go runtimes in one process",
    "everything, of the one that `--runtime FILE` chooses; without a choice that of the "
    "executable, else the CPU profile",
)
@pytest.mark.parametrize(("name", "number"), [("libfirst.so", 0), *in_full(("libsecond.so", 1))])
def test_one_of_several_runtimes_is_chosen(name: str, number: int, tmp_path: Path) -> None:
    """A goroutine that C called waits, too: Rounds itself."""
    with calling(*copies(tmp_path, "libfirst.so", "libsecond.so")) as target:
        folder = tmp_path / "out"
        folder.mkdir()
        ours = recorded(target, number, 30, folder, "--runtime", name)
        assert sum(sample.values[0] for sample in ours.samples) == 3 * 30
        (mapped, *_) = ours.mappings
        assert mapped.filename == str(tmp_path / name)
        dumped = verb("dump", "--pid", str(target.pid), "--runtime", str(tmp_path / name))
        assert dumped.code == ExitCode.OK, dumped.stderr


def test_without_a_choice_several_are_named(tmp_path: Path) -> None:
    with calling(*copies(tmp_path, "libfirst.so", "libsecond.so")) as target:
        pid = str(target.pid)
        why = "several Go runtimes, in libfirst.so and libsecond.so: choose one with --runtime"
        for refused in (
            verb("dump", "--pid", pid),
            run("--pid", pid, "--profile", "block", "--duration", "0.5", folder=tmp_path),
        ):
            assert refused.code == ExitCode.NOT_GO_PROGRAM, refused.stderr
            assert f"Process {pid} (python3" in in_one_line(refused.stderr)
            assert why in in_one_line(refused.stderr)
        missing = verb("dump", "--pid", pid, "--runtime", "libthird.so")
        assert missing.code == ExitCode.USAGE
        assert "It has one in libfirst.so and libsecond.so." in in_one_line(missing.stderr)
        rows = json.loads(verb("list", "--json").stdout)["processes"]
        (row,) = (row for row in rows if row["pid"] == target.pid)
        assert not row["supported"]
        assert row["why_not"] == why
        target.ask("1 Work", "done")
        options = ("--profile", "default", "--duration", "0.5")
        finished = run("--pid", pid, *options, folder=tmp_path)
        assert finished.code == ExitCode.OK, finished.stderr
        assert f"{why}. Now only its CPU profile is recorded" in in_one_line(finished.stderr)
        assert functions(only_profile(tmp_path))["main.compute"]


@pytest.mark.full
def test_a_library_beside_a_go_program(tmp_path: Path) -> None:
    """The program is recorded unless the library is chosen, and what is missing is reported."""
    sentence = "has a separate Go runtime, which is not recorded: choose it with --runtime."
    (path,) = copies(tmp_path, "libother.so")
    with Target.start(program("twogo", mode="cgo"), str(path)) as target:
        for options, root in ((), "main.share"), (("--runtime", path.name), "main.contend"):
            folder = tmp_path / root
            folder.mkdir()
            chosen = (*EVERY_WAIT, *options, "--duration", "0.5")
            finished = run("--pid", str(target.pid), *chosen, folder=folder)
            assert finished.code == ExitCode.OK, finished.stderr
            assert (sentence in in_one_line(finished.stderr)) == (not options)
            (sample,) = only_profile(folder).samples
            names = [frame.function for at in sample.locations for frame in at.frames]
            assert names == ["sync.(*Mutex).Lock", root]


def test_its_goroutines_are_those_of_gos_profile(library: Library, tmp_path: Path) -> None:
    own, folder = tmp_path / "go.prof", tmp_path / "ours"
    folder.mkdir()
    options = ("--profile", "goroutine", "--duration", "0.1")
    finished = run("--pid", library.pid, *options, folder=folder)
    assert finished.code == ExitCode.OK, finished.stderr
    library.target.ask(f"0 Write goroutine {own}", "done")
    theirs, ours = pprof.decode(own.read_bytes(), kind="goroutine"), only_profile(folder)
    assert goroutines_in(theirs, "main.contend") == goroutines_in(ours, "main.contend") == 3
    assert goroutines_in(theirs, "main.compute") == 1  # it runs, so it has no stack to read
    assert event_count(ours) == event_count(theirs)


def goroutines_in(profile: Profile, function: str) -> int:
    return sum(
        sample.values[0]
        for sample in profile.samples
        if function in {frame.function for at in sample.locations for frame in at.frames}
    )


def test_a_dump_has_all_its_goroutines(library: Library) -> None:
    output = verb("dump", "--pid", library.pid, "--json")
    assert output.code == ExitCode.OK, output.stderr
    assert output.stderr == ""
    found = json.loads(output.stdout)["goroutines"]
    names = [[frame["function"] for frame in each["stack"]] for each in found]
    assert sum("main.contend" in stack for stack in names) == 3
    assert all(each["stack_is_whole"] for each in found if each["state"] != "running")
    (running,) = (each for each in found if each["state"] == "running")
    assert running["created_by"]["function"] == "main.Work"


def test_its_memory_is_what_go_counts(library: Library) -> None:
    before = int(library.target.ask("0 Allocated", "done").split()[1])
    output = verb("memory", "--pid", library.pid, "--json")
    assert output.code == ExitCode.OK, output.stderr
    after = int(library.target.ask("0 Allocated", "done").split()[1])
    read = json.loads(output.stdout)["statistics"]["total_allocated_bytes"]
    assert before <= read <= after


@pytest.mark.full
def test_its_execution_trace_has_its_goroutines(library: Library, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    options = ("-d", "0.3", "--max-overhead", "0", "-f", "perfetto", "-o", str(file))
    output = verb("trace", "--pid", library.pid, *options)
    assert output.code == ExitCode.OK, output.stderr
    assert not has_probes(library.target.pid)
    assert "main.contend" in output.stdout


def test_its_cpu_profile_has_its_functions(library: Library, tmp_path: Path) -> None:
    options = ("--profile", "cpu", "--duration", "0.5")
    finished = run("--pid", library.pid, *options, folder=tmp_path)
    assert finished.code == ExitCode.OK, finished.stderr
    profile = only_profile(tmp_path)
    stacks = {
        tuple(frame.function for at in sample.locations for frame in at.frames)
        for sample in profile.samples
    }
    assert ("main.compute",) in stacks
    assert [comment for comment in profile.comments if comment.startswith("incomplete")] == []


@pytest.mark.full
def test_it_is_listed_as_supported(library: Library) -> None:
    rows = json.loads(verb("list", "--json").stdout)["processes"]
    (row,) = (row for row in rows if str(row["pid"]) == library.pid)
    assert row["supported"], row
    assert row["go_version"].startswith("go1.27")
    assert row["build_mode"] == "c-shared cgo"
    assert row["goroutines"] == 5  # with that of the thread that called Work


@pytest.mark.full
def test_it_is_explained(library: Library) -> None:
    output = verb("explain", library.pid, "--duration", "1", "--json")
    (found,) = json.loads(output.stdout)["processes"]
    assert output.code == ExitCode.FAULT_FOUND, output.stderr
    titles = " ".join(finding["title"] for finding in found["findings"])
    assert "main.mu" in titles or "main.contend" in titles  # the name of a lock needs a holder


@pytest.mark.full
def test_it_is_served(library: Library) -> None:
    with Server("--pid", library.pid) as server:
        text = server.get("/debug/pprof/goroutine?debug=2").body.decode()
        assert text.count("main.contend(") >= 3
        trace = server.get("/debug/pprof/trace?seconds=0.3")
        assert trace.body.startswith(b"go 1.")
