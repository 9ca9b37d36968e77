"""What commands write and print beside their golden files, on saved recordings and images."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.export import pprof
from ebpfprof.profile.model import Profile, Sample
from tests.images.target import NO_PID
from tests.profilerules import violations
from tests.recorded import commands, replay
from tests.recorded.program import SHOP
from tests.recorded.replay import Ran, Shows, recorded

BLOCK = "attach {} --max-overhead 0 -d 1 --profile block"
MUTEX = "attach {} --max-overhead 0 -d 1 --profile mutex"
ALL = "attach {} --max-overhead 0 -d 1"
WHEN = "20261127-080000"


def attach(command: str, folder: Path, *recordings: str) -> Ran:
    """Run the command for recorded processes; it must succeed."""
    ran = replay.run(command, *map(recorded, recordings), folder=folder)
    assert ran.code == ExitCode.OK, ran.stderr
    return ran


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def read(path: Path) -> Profile:
    """The profile in a file, which all readers must accept."""
    data = path.read_bytes()
    profile = pprof.decode(data)
    assert violations(data, now_s=profile.time_ns / 1e9 + 60) == []
    return profile


def functions(sample: Sample) -> set[str]:
    return {frame.function for frame in sample.frames}


def test_attach_prints_start_table_cost_and_next_command(tmp_path: Path) -> None:
    ran = attach(BLOCK, tmp_path, "requests")
    (name,) = names(tmp_path)
    assert name == f"shop-{NO_PID}-{WHEN}.block.pb.gz"
    assert ran.stderr.decode() == (
        f"recording block profile of process {NO_PID} (shop) for 1 s; Ctrl-C ends it\n"
    )
    lines = ran.stdout.decode().strip().splitlines()
    sentence, blank, heading, *table = lines[: lines.index(f"Written: {name}")]
    assert "main.ask" in sentence
    assert blank == ""
    assert re.fullmatch(rf"Waits of process {NO_PID} \(shop\) in [\d.]+ m?s:", heading)
    assert "main.ask" in "\n".join(table)
    following, pprof_command, report, overhead, *accuracy = lines[len(table) + 4 :]
    assert following == "Next:"
    assert pprof_command == f"    go tool pprof -http=: {name}"
    assert report == f"    ebpfprof report {name} -o profile.html"
    assert overhead.startswith("Overhead: ")
    assert overhead.endswith(" of the process's CPU time. More with --long.")
    assert accuracy[-1] == "Every wait was recorded."


@pytest.mark.parametrize("name", ["attach-lock", "attach-idle", "attach-old-go"])
def test_attach_fits_a_terminal_of_24_lines(name: str) -> None:
    _, *shown = commands.output_of(commands.COMMANDS[name]).decode().splitlines()
    _, lines = commands.TERMINAL
    assert len(shown) < lines
    text = "\n".join(shown)
    assert text.count("go tool pprof") == 1
    assert "ebpfprof report shop-" in text
    assert "More with --long." in text
    assert ".{block,mutex,cpu}.pb.gz" in text


def test_the_long_form_is_longer_and_has_the_probe_hits() -> None:
    text = commands.output_of(commands.COMMANDS["attach-lock-long"]).decode()
    assert len(text.splitlines()) > 40
    assert "\nebpfprof used " in text
    assert "probe hits" in text


def test_goroutines_that_hang_are_reported() -> None:
    shown = commands.output_of(commands.COMMANDS["attach-hangs"]).decode()
    text = " ".join(shown.split())
    assert re.search(r"did not move for [78]\.\d s", text)
    assert "Mutex.Lock in main.(*prices).find" in text


def test_an_output_file_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    path = "files/it's.pb.gz"
    ran = attach(f"{BLOCK} -o {path}", tmp_path, "requests")
    assert f"Written: {path}\n" in ran.stdout.decode()
    (further,) = re.findall(r"^    go tool pprof .*$", ran.stdout.decode(), re.MULTILINE)
    assert shlex.split(further)[-1] == path
    assert read(tmp_path / path).samples


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("before", ["before.block.pb.gz", "before.cpu.pb.gz", "before.mutex.pb.gz"]),
        ("x.html", ["x.block.html", "x.cpu.html", "x.mutex.html"]),
    ],
)
def test_several_profiles_get_their_kinds_into_the_name(
    name: str, written: list[str], tmp_path: Path
) -> None:
    ran = attach(f"{ALL} -o {name}", tmp_path, "requests")
    assert names(tmp_path) == written
    assert all(f"Written: {each}\n" in ran.stdout.decode() for each in written)


def test_a_second_recording_keeps_the_files_of_the_first(tmp_path: Path) -> None:
    attach(ALL, tmp_path, "requests")
    first = {path: path.read_bytes() for path in tmp_path.iterdir()}
    attach(ALL, tmp_path, "requests")
    assert len(names(tmp_path)) == 6
    assert all(path.read_bytes() == data for path, data in first.items())
    kinds = [name.rsplit(".", 3)[1] for name in names(tmp_path)]
    assert sorted(kinds) == ["block", "block-2", "cpu", "cpu-2", "mutex", "mutex-2"]


def test_the_profile_can_go_to_stdout(tmp_path: Path) -> None:
    ran = attach(f"{BLOCK} -o -", tmp_path, "requests")
    assert pprof.decode(ran.stdout).samples
    assert "main.ask" in ran.stderr.decode()
    assert "Written" not in ran.stderr.decode()
    assert names(tmp_path) == []


def test_several_processes_have_files_and_tables_of_their_own(tmp_path: Path) -> None:
    command = BLOCK.replace("{}", "{} {}")
    ran = attach(command, tmp_path, "requests", "oldgo")
    pids = NO_PID, NO_PID + 1
    assert names(tmp_path) == [f"shop-{pid}-{WHEN}.block.pb.gz" for pid in pids]
    assert ran.stdout.decode().count("Waits of process ") == 2


def test_a_kind_named_twice_is_recorded_once(tmp_path: Path) -> None:
    attach(f"{ALL} --profile block,block --profile block", tmp_path, "requests")
    assert names(tmp_path) == [f"shop-{NO_PID}-{WHEN}.block.pb.gz"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--profile heaps", '"heaps"'),
        ("--block-rate 0", "--block-rate"),
        ("--block-rate x", "--block-rate"),
        ("--duration 0", "--duration"),
        ("--duration nan", "--duration"),
        ("--duration inf", "--duration"),
        ("--nonsense", "--nonsense"),
    ],
)
def test_usage_errors_name_the_option(arguments: str, words: str, tmp_path: Path) -> None:
    ran = replay.run(f"attach {{}} {arguments}", recorded("requests"), folder=tmp_path)
    assert ran.code == ExitCode.USAGE
    assert words in ran.stderr.decode()
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--by-lock", {"--by-lock", "--profile", "mutex"}),
        ("--lock-labels", {"--lock-labels", "--profile", "mutex"}),
        ("--open -o -", {"-o", "one", "profile"}),
    ],
)
def test_conflicting_options_are_refused(arguments: str, words: set[str], tmp_path: Path) -> None:
    command = f"attach {{}} --profile block {arguments}"
    ran = replay.run(command, recorded("requests"), folder=tmp_path)
    assert ran.code == ExitCode.USAGE
    sentence = ran.stderr.decode().partition("Error: ")[2].strip()
    assert sentence.endswith(".")
    assert words <= set(re.split(r"[^\w-]+", sentence))
    assert ran.stdout == b""
    assert names(tmp_path) == []


def test_a_lock_table_is_no_single_profile_on_stdout(tmp_path: Path) -> None:
    ran = replay.run(f"{MUTEX} --by-lock --open -o -", recorded("requests"), folder=tmp_path)
    assert ran.code == ExitCode.USAGE
    assert {"-o", "one", "profile"} <= set(re.split(r"[^\w-]+", ran.stderr.decode()))


@pytest.mark.parametrize("option", ["--by-lock", "--lock-labels"])
def test_without_waits_no_lock_is_shown(option: str, tmp_path: Path) -> None:
    ran = attach(f"{MUTEX} {option}", tmp_path, "idle")
    assert "no goroutine waited for a lock" in ran.stdout.decode()
    (path,) = tmp_path.iterdir()
    assert read(path).samples == ()


def test_the_lock_table_goes_to_stderr_beside_a_profile_on_stdout(tmp_path: Path) -> None:
    ran = attach(f"{MUTEX} --by-lock -o -", tmp_path, "requests")
    profile = pprof.decode(ran.stdout)
    assert profile.samples
    # Labels of goroutines, none of locks.
    assert {label.key for each in profile.samples for label in each.labels} == {"route", "tenant"}
    assert f"Locks of process {NO_PID} (shop):" in ran.stderr.decode()
    assert "main.prices.mu (sync.Mutex at 0x" in ran.stderr.decode()


def test_lock_labels_alone_print_no_table(tmp_path: Path) -> None:
    ran = attach(f"{MUTEX} --lock-labels", tmp_path, "requests")
    assert "Locks of process" not in ran.stdout.decode()
    (path,) = tmp_path.iterdir()
    locks = {
        str(label.value)
        for each in read(path).samples
        for label in each.labels
        if label.key == "lock"
    }
    assert locks == {"main.prices.mu", "net/http.persistConn.mu"}


def test_requests_have_the_labels_of_their_handler(tmp_path: Path) -> None:
    attach(BLOCK, tmp_path, "requests")
    (path,) = tmp_path.iterdir()
    found = {
        frozenset((label.key, label.value) for label in each.labels)
        for each in read(path).samples
        if "main.(*shop).buy.func1" in functions(each)
    }
    tenants = ("blue", "green", "red")
    assert found == {frozenset({("route", "/buy"), ("tenant", each)}) for each in tenants}


def test_only_labels_with_the_chosen_keys_are_shown(tmp_path: Path) -> None:
    attach(f"{BLOCK} --labels tenant", tmp_path, "requests")
    (path,) = tmp_path.iterdir()
    keys = {label.key for each in read(path).samples for label in each.labels}
    assert keys == {"tenant"}


def test_without_labels_equal_stacks_are_merged(tmp_path: Path) -> None:
    attach(f"{BLOCK} --labels none", tmp_path, "requests")
    (path,) = tmp_path.iterdir()
    stacks = [each.locations for each in read(path).samples]
    assert len(set(stacks)) == len(stacks)


def test_threads_and_their_system_calls_are_shown() -> None:
    shown = commands.output_of(commands.COMMANDS["attach-threads"]).decode()
    assert "Threads  Share  Operation" in shown
    assert "syscall read" in shown
    assert "main.readPipe" in shown


def test_all_sizes_and_types_of_memory() -> None:
    short, whole = (
        commands.output_of(commands.COMMANDS[name]).decode() for name in ("memory", "memory-all")
    )
    assert "more size" in short
    assert "more size" not in whole
    assert len(whole.splitlines()) > len(short.splitlines())


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ("--name no-such-program", ExitCode.NO_SUCH_PROCESS, "\n    ebpfprof list\n"),
        ("--container abcdef", ExitCode.NO_SUCH_PROCESS, "begins with abcdef"),
        ("--container abcde", ExitCode.USAGE, "at least the first 6 characters"),
        ("--name=", ExitCode.USAGE, '--name must be a name, not ""'),
        ("--all-go --pid 1", ExitCode.USAGE, "omit --pid and --name"),
        ("", ExitCode.USAGE, "--all-go"),
    ],
)
def test_attach_without_a_matching_process_explains_what_to_do(
    arguments: str, code: ExitCode, words: str, tmp_path: Path
) -> None:
    there = Shows(SHOP.shown())
    ran = replay.run(f"attach {arguments}", there, folder=tmp_path)
    assert ran.code == code
    assert words in ran.stderr.decode()
    assert names(tmp_path) == []


def test_attach_finds_processes_by_name(tmp_path: Path) -> None:
    command = "attach --max-overhead 0 -d 1 --profile block --name shop"
    attach(command, tmp_path, "requests", "idle")
    assert names(tmp_path) == [f"shop-{NO_PID + n}-{WHEN}.block.pb.gz" for n in range(2)]


def test_an_empty_list_is_no_failure(tmp_path: Path) -> None:
    ran = replay.run("list --name no-such-program", Shows(SHOP.shown()), folder=tmp_path)
    assert ran.code == ExitCode.OK
    assert ran.stdout == b"There is no Go process called no-such-program here.\n"
