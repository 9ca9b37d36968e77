"""`ebpfprof explain` of real services: what it prints, how it ends, and what it keeps."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest

from ebpfprof.commands.cli import cli
from ebpfprof.errors import EbpfprofError, ExitCode
from ebpfprof.export import pprof
from ebpfprof.goruntime.open_processes import OpenOptions
from ebpfprof.observing.observer import Observer, observation_options, open_session
from tests.kernel.kernel_state import has_probes, probed
from tests.kernel.programs import program
from tests.kernel.screens import screen
from tests.kernel.test_doctor import failing
from tests.kernel.users import by_user, ebpfprof, open_checkout, process_of
from tests.kernel.verbs import PYTHON, Said, verb
from tests.targets_run import DEADLINE_S, Target

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs" / "explain.schema.json").read_text())
SERVICES = ("hotlock", "healthy", "deadlock")
ONE_S = ("-d", "1")
# In a short time its name may not be known, only where it is.
HOT = r"(?:Lock|A lock) .*\bpriceCache\b"
OWNER = 12345
USER = 23456


@pytest.fixture(scope="module")
def services() -> Iterator[dict[str, Target]]:
    with ExitStack() as held:
        yield {
            name: held.enter_context(Target.start(program(f"services/{name}"))) for name in SERVICES
        }


@pytest.fixture(scope="module")
def pids(services: dict[str, Target]) -> list[str]:
    return [str(services[name].pid) for name in SERVICES]


@pytest.fixture(scope="module")
def as_json(pids: list[str]) -> Said:
    """An observation of all of them."""
    return verb("explain", *pids, "-d", "2", "--json")


@contextmanager
def running(*arguments: str, folder: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    command = [*PYTHON, "explain", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=folder) as process:
        try:
            yield process
        finally:
            process.kill()


# It takes CPU time to import them.
NEEDLESS = (
    *("numpy.ma", "numpy.random", "psutil", "bcc"),
    *("ebpfprof.tracing", "ebpfprof.timeline", "ebpfprof.export.pprof", "ebpfprof.server"),
)
# The command, and then which of these modules it has imported.
LISTING = f"""
import sys
from ebpfprof.__main__ import main
try:
    main()
finally:
    print(*sys.modules.keys() & {set(NEEDLESS)!r}, file=sys.stderr)
"""


def read(line: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(line)
    jsonschema.validate(found, SCHEMA)
    return found


def test_nothing_is_imported_that_it_does_not_need(services: dict[str, Target]) -> None:
    arguments = ("explain", str(services["healthy"].pid), "-d", "0.5")
    done = subprocess.run(
        [sys.executable, "-c", LISTING, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == ExitCode.OK, done.stderr
    assert done.stderr.strip() == ""


def test_json_is_as_its_schema_says(as_json: Said, pids: list[str]) -> None:
    assert as_json.code == ExitCode.FAULT_FOUND, as_json.stderr
    assert as_json.stderr == ""
    document = read(as_json.stdout)
    assert document["exit_code"] == ExitCode.FAULT_FOUND
    assert [str(one["pid"]) for one in document["processes"]] == pids
    hot, healthy, deadlock = document["processes"]
    assert hot["findings"][0]["kind"] == "hot_lock"
    assert hot["findings"][0]["place"]["function"] == "main.(*priceCache).get"
    assert healthy["findings"] == []
    assert healthy["fine"]
    assert deadlock["findings"]
    assert all(one["incomplete"] == [] for one in document["processes"])


def test_what_to_type_next_is_a_command_that_exists(as_json: Said, pids: list[str]) -> None:
    commands = [
        finding["next"]
        for one in read(as_json.stdout)["processes"]
        for finding in one["findings"]
        if finding["next"]
    ]
    assert len(commands) >= 2
    for command in commands:
        name, verb_name, *arguments = shlex.split(command)
        assert name == "ebpfprof"
        parent = click.Context(cli, **cli.context_settings)
        found = cli.get_command(parent, verb_name)
        assert found is not None
        context = found.make_context(verb_name, arguments, parent=parent)
        assert str(context.params["pids"][0]) in pids


def test_no_probe_is_left_in_the_processes(as_json: Said, services: dict[str, Target]) -> None:
    assert [name for name, target in services.items() if has_probes(target.pid)] == []


def test_text_of_several_processes_begins_with_a_line_of_each(pids: list[str]) -> None:
    output = verb(",".join(pids), *ONE_S)
    assert output.code == ExitCode.FAULT_FOUND, output.stderr
    hot, healthy, deadlock, blank = output.stdout.splitlines()[:4]
    assert re.match(rf"{pids[0]} \(hotlock\): {HOT}", hot)
    assert healthy == f"{pids[1]} (healthy): Nothing is wrong, as far as this shows."
    assert re.match(rf"{pids[2]} \(deadlock\): [DHL]", deadlock)  # it takes longer to be sure
    assert blank == ""
    heads = re.findall(r"^Process (\d+) \(", output.stdout, re.MULTILINE)
    assert heads == pids


def test_it_fits_a_terminal_and_a_signal_ends_it_early(tmp_path: Path, pids: list[str]) -> None:
    with screen(tmp_path, 80, 24, PYTHONPATH=str(ROOT)) as terminal:
        terminal.type(f"clear; {sys.executable} -m ebpfprof {pids[0]} -d 600; echo status $?")
        terminal.wait_for(r" 1 of 600 s")
        terminal.press("C-c")
        terminal.wait_for("^status 15$")
        shown = terminal.text().splitlines()
        assert "\x1b[1;33m" not in terminal.text()
        assert re.search(rf"\x1b\[1m\x1b\[33m1\. {HOT}", terminal.text("-e"))
    first = next(i for i, line in enumerate(shown) if line.startswith(f"Process {pids[0]} ("))
    last = shown.index("status 15")
    assert last - first <= 15
    assert max(map(len, shown)) <= 80


def test_an_end_of_the_process_is_reported_with_what_was_seen() -> None:
    live, refusal = open_session(observation_options(OpenOptions()), 1)
    assert refusal is None
    with (
        live,
        Target.start(program("services/hotlock")) as target,
        Observer(live, [target.pid], 60.0) as observer,
    ):

        def kill(gone_s: float) -> bool:
            if gone_s > 1:
                target.kill()
            return False

        (evidence,) = observer.observe(kill)
        assert not isinstance(evidence, EbpfprofError)
        assert evidence.failures[-1] == f"Process {target.pid} ended: this is until then."
        assert 1 < evidence.seconds < 10
        assert evidence.dumps
        assert evidence.work.total_ns > 0
        (again,) = observer.observe(lambda _: False)
        assert isinstance(again, EbpfprofError)


@pytest.mark.parametrize(("call", "code"), [("bpf", "EPERM"), ("perf_event_open", "EACCES")])
def test_without_bpf_the_cpu_is_left_out(call: str, code: str, pids: list[str]) -> None:
    output = verb("explain", pids[0], *ONE_S, command=failing(call, code))
    assert output.code == ExitCode.FAULT_FOUND, output.stderr
    assert re.search(rf"^1\. {HOT}", output.stdout, re.MULTILINE)
    assert "\nWithout CPU samples: The kernel " in output.stdout


def test_a_user_may_explain_by_memory_alone_or_is_sent_to_sudo() -> None:
    with open_checkout() as checkout, process_of(OWNER) as target:
        command = ebpfprof(checkout, "explain", str(target.pid), *ONE_S)
        reader = verb(command=(*by_user(USER, ("sys_ptrace", "dac_read_search")), *command))
        stranger = verb(command=(*by_user(USER), *command))
        attached = verb(
            command=(*by_user(USER), *ebpfprof(checkout, "attach", str(target.pid), *ONE_S))
        )
    assert reader.code in (ExitCode.OK, ExitCode.FAULT_FOUND), reader.stderr
    assert "Without CPU samples: " in reader.stdout
    assert stranger.code == attached.code == ExitCode.PERMISSION_DENIED
    assert stranger.stderr.replace(" explain ", " attach ") == attached.stderr


def test_watch_prints_what_changes(pids: list[str]) -> None:
    with running(pids[0], "--watch", "-d", "0.5", "--json") as process:
        assert process.stdout is not None
        first, second = read(process.stdout.readline()), read(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)
    assert process.returncode == ExitCode.FAULT_FOUND
    assert (first["change"], first["finding"]["kind"]) == ("new", "hot_lock")
    assert (second["change"], second["finding"]["kind"]) == ("still", "hot_lock")


def test_trouble_is_reported_and_evidence_kept(tmp_path: Path, services: dict[str, Target]) -> None:
    names = ("healthy", "hotlock")
    pids = ",".join(str(services[name].pid) for name in names)
    arguments = (pids, "--wait-for-trouble", "-d", "0.5", "--last", "5", "-o", "kept", "--json")
    with running(*arguments, folder=tmp_path) as process:
        assert process.stderr is not None
        while not (tmp_path / "kept" / "goroutines.txt").exists():
            assert process.poll() is None, process.stderr.read()
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == ExitCode.FAULT_FOUND, stderr
    document = read(stdout)
    (trouble,) = document["processes"]
    assert trouble["findings"][0]["kind"] == "hot_lock"
    kept = document["kept"]
    folder = tmp_path / kept["folder"]
    assert kept["problems"] == []
    assert sorted(path.name for path in folder.iterdir()) == sorted(kept["files"])
    assert set(kept["files"]) == {
        *("explanation.txt", "explanation.json", "goroutines.txt", "before.html", "trace.html"),
        *("block.pb.gz", "mutex.pb.gz", "cpu.pb.gz"),
    }
    assert folder.stat().st_mode & 0o777 == 0o700
    text = (folder / "explanation.txt").read_text()
    assert re.search(rf"^1\. {HOT}", text, re.MULTILINE)
    assert read((folder / "explanation.json").read_text())["processes"] == [trouble]
    assert "goroutines of process" in (folder / "goroutines.txt").read_text()
    assert pprof.decode((folder / "block.pb.gz").read_bytes()).kind == "block"
    for name in ("before.html", "trace.html"):
        assert (folder / name).read_text().startswith("<!DOCTYPE html>")
    again = verb("explain", *arguments, folder=tmp_path)
    assert again.code == ExitCode.OUTPUT_ERROR
    assert again.stderr == "ebpfprof: kept is there already: choose another folder with -o.\n"
    assert not any(probed(services[name].pid) for name in names)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--watch", "--wait-for-trouble"),
        ("-o", "kept"),
        ("--watch", "-o", "kept"),
        ("--last", "5"),
        ("--pid", "2,3,4,5", "--wait-for-trouble", "--last", "5"),
    ],
)
def test_options_that_do_not_fit_are_refused(arguments: tuple[str, ...], pids: list[str]) -> None:
    assert verb("explain", pids[0], *arguments).code == ExitCode.USAGE
