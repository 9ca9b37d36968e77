"""A signal ends each verb at any moment: no signal is lost, and nothing is left."""

from __future__ import annotations

import os
import pty
import random
import signal
import subprocess
import tempfile
import termios
import threading
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from ebpfprof.export import pprof
from tests.builds import in_full
from tests.kernel.kernel_state import await_no_probes, has_probes, helpers
from tests.kernel.programs import program
from tests.kernel.signalled import Moment, command
from tests.kernel.unharmed import await_true, whole_profiles
from tests.server.serving import Server, await_probes
from tests.targets_run import SLOWNESS, Target
from tests.unit.export.small_profile import SMALL

INT, TERM, HUP = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
ABORTED = 130
DEADLINE_S = 120 * SLOWNESS
# How many moments of each verb the long test tries; as many as one likes.
MOMENTS = int(os.environ.get("EBPFPROF_TEST_MOMENTS", "12"))
SAVED = "saved.pb.gz"

VERBS = {
    "attach": ("attach", "--pid", "PID", "--duration", "0.2"),
    "run": ("run", "--", str(program("brief")), "exit", "3"),
    "top": ("top", "--pid", "PID", "--once", "--interval", "0.2"),
    "top on a screen": ("top", "--pid", "PID", "--duration", "1", "--interval", "0.2"),
    "serve": ("serve", "--pid", "PID", "--listen", "127.0.0.1:0", "--continuous"),
    "list": ("list",),
    "report": ("report", SAVED),
    "report to a file": ("report", SAVED, "-f", "html", "-o", "report.html"),
    "diff": ("diff", SAVED, SAVED),
    "doctor": ("doctor",),
    "completion": ("completion", "bash"),
}
RECORD = ("attach", "run", "top", "top on a screen", "serve")
# What is done when there is something to write.
RECORDS = {
    "attach": "ebpfprof.recording.session:Session.wait",
    "top on a screen": "ebpfprof.top.app:TopApp.on_mount",
    "serve": "ebpfprof.commands.serve:_say_ready",
}
ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
NEVER_SAID = ("Traceback", "Exception ignored", "This is a bug", "never retrieved", "Fatal")


@dataclass(frozen=True)
class Ended:
    """What became of a run that got signals."""

    code: int
    screen: bytes
    stderr: str
    calls: int
    left: Sequence[str]
    """The signals that it ended too soon for."""


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with Target.start(program("ticker")) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where it runs: a saved profile is there, and nothing else."""
    return made(tmp_path / "0")


def made(folder: Path) -> Path:
    folder.mkdir()
    (folder / SAVED).write_bytes(pprof.encode(SMALL))
    return folder


def run(verb: str, target: Target, folder: Path, *moments: Moment) -> Ended:
    """Run a verb that gets signals; fails unless it ends well and leaves nothing."""
    words = [word.replace("PID", str(target.pid)) for word in VERBS[verb]]
    counted, mark = folder.parent / "counted", str(uuid.uuid4())
    screen, terminal = pty.openpty()
    before = termios.tcgetattr(terminal)
    streams = terminal if verb == "top on a screen" else subprocess.DEVNULL
    seen: list[bytes] = []
    reader = threading.Thread(target=read_all, args=(screen, seen))
    reader.start()
    with tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            [*command(moments, counted), *words],
            stdin=streams,
            stdout=streams,
            stderr=stderr,
            cwd=folder,
            env={**os.environ, "TERM": "xterm", "MARK": mark},
        )
        try:
            code = process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            code = None
            process.send_signal(signal.SIGUSR1)
            with suppress(subprocess.TimeoutExpired):  # it hangs, which is shown below
                process.wait(1)
        finally:
            process.kill()
            process.wait()
            after = termios.tcgetattr(terminal)
            os.close(terminal)
            reader.join()
            os.close(screen)
            stderr.seek(0)
            output = stderr.read().decode()
    assert code is not None, f"it goes on: {output}"
    assert not [words for words in NEVER_SAID if words in output], output
    assert after == before
    calls, *left = counted.read_text().split()
    await_true(lambda: not marked(mark), "a process of it is left")
    assert not has_probes(target.pid)
    assert not [name for name in os.listdir(folder) if name.startswith(".")]
    return Ended(code, b"".join(seen), output, int(calls), left)


def read_all(screen: int, seen: list[bytes]) -> None:
    with suppress(OSError):  # the terminal is closed
        while data := os.read(screen, 1 << 16):
            seen.append(data)


def marked(mark: str) -> list[int]:
    """The processes that have inherited a mark."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile
            if f"MARK={mark}".encode() in (path / "environ").read_bytes():
                found.append(int(path.name))
    return found


def written(folder: Path) -> Collection[str]:
    """What it wrote, which must be whole."""
    (folder / SAVED).unlink()
    html = folder / "report.html"
    if html.exists():
        assert html.read_text().rstrip().endswith("</html>")
        html.unlink()
        return {html.name}
    whole_profiles(folder)
    return os.listdir(folder)


BEGINNING = "1"
# What is done at the moment of the first signal, and of the second; the exit codes that may be.
ABORTS = [
    *((verb, BEGINNING) for verb in VERBS),
    *((verb, "import=click") for verb in ("attach", "list")),
    ("attach", "import=capstone.ccapstone"),  # capstone catches everything there
    ("attach", "ebpfprof.kernel.compiler:Compilation.result"),
    ("attach", "ebpfprof.recording.session:Session.start"),
    *in_full(("run", "os.fork")),
    ("run", "ebpfprof.process.launch:SignalRelay.__enter__"),
    *in_full(("top", "ebpfprof.recording.live:LiveSession.start")),
    *in_full(("serve", "import=capstone.ccapstone")),
    ("serve", "os.fork>logging:_releaseLock"),  # called by Python, which ignores exceptions there
    ("serve", "ebpfprof.kernel.uprobe_helper:UprobeHelper.__init__"),
    *in_full(("serve", "uvicorn.server:Server.startup")),
    ("list", "ebpfprof.discovery.processes:ProcessTable.survey"),
    ("report", "ebpfprof.export.pprof.reader:decode"),
    ("report to a file", "ebpfprof.console.output_file:OutputFile.prepare"),
    ("report to a file", "ebpfprof.console.output_file:OutputFile.discard"),
    ("diff", "ebpfprof.export.tables.diff:render"),
    ("doctor", "ebpfprof.commands.doctor_checks:examine"),
    ("completion", "ebpfprof.console.terminal:say"),
]


@pytest.mark.parametrize(("verb", "step"), ABORTS)
def test_a_signal_before_recording_aborts_each_verb(
    verb: str, step: str, target: Target, folder: Path
) -> None:
    number = random.Random(verb + step).choice((INT, TERM, HUP))
    ended = run(verb, target, folder, (number, step))
    assert ended.left == []
    assert ended.code == ABORTED, ended.stderr
    assert set(written(folder)) <= ({"report.html"} if "discard" in step else set())


@pytest.mark.parametrize(
    ("verb", "step"),
    [
        *in_full(("attach", "ebpfprof.recording.session:Session.wait")),
        *in_full(("attach", "ebpfprof.recording.session:Session.finish")),
        ("attach", "ebpfprof.console.output_file:OutputFile.commit"),
        *in_full(("top", "ebpfprof.top.poller:Poller.sample")),
        *in_full(("top on a screen", "ebpfprof.top.app:TopApp.on_mount")),
        *in_full(
            ("top on a screen", "textual.drivers.linux_driver:LinuxDriver.stop_application_mode")
        ),
        *in_full(("serve", "ebpfprof.commands.serve:_say_ready")),
    ],
)
def test_a_signal_ends_each_recording_verb(
    verb: str, step: str, target: Target, folder: Path
) -> None:
    ended = run(verb, target, folder, (TERM, step))
    assert ended.left == []
    assert ended.code == 0, ended.stderr
    assert ended.screen.count(ENTER) == ended.screen.count(LEAVE) == (verb == "top on a screen")
    assert len(written(folder)) == (3 if verb == "attach" else 0)


@pytest.mark.parametrize(
    ("verb", "step"),
    [
        ("attach", "ebpfprof.kernel.uprobe_helper:UprobeHelper.detach"),
        *in_full(("attach", "ebpfprof.recording.reports:reported")),
        *in_full(("attach", "ebpfprof.console.output_file:OutputFile.commit")),
        *in_full(("serve", "ebpfprof.continuous.manager:Manager.stop_at_once")),
        *in_full(
            ("top on a screen", "textual.drivers.linux_driver:LinuxDriver.stop_application_mode")
        ),
    ],
)
def test_a_second_signal_aborts(verb: str, step: str, target: Target, folder: Path) -> None:
    first = {
        "attach": "ebpfprof.recording.session:Session.wait",
        "serve": "ebpfprof.commands.serve:_say_ready",
    }
    moments = ((INT, first.get(verb, "ebpfprof.top.app:TopApp.on_mount")), (HUP, step))
    ended = run(verb, target, folder, *moments)
    assert ended.left == []
    assert ended.code == ABORTED, ended.stderr
    assert ended.screen.count(ENTER) == ended.screen.count(LEAVE)
    assert not written(folder)


@pytest.mark.full
@pytest.mark.parametrize("verb", VERBS)
def test_a_signal_at_any_moment_leaves_no_probe_and_no_partial_file(
    verb: str, target: Target, tmp_path: Path
) -> None:
    dice = random.Random(verb)
    end = [(TERM, RECORDS[verb])] if verb == "serve" else []
    total = run(verb, target, made(tmp_path / "whole"), *end).calls
    for index in range(MOMENTS):
        folder = made(tmp_path / str(index))
        number = dice.choice((INT, TERM, HUP))
        step = max(int(total * (index + dice.random()) / MOMENTS), 1)
        ended = run(verb, target, folder, (number, str(step)))
        reported = f"{number.name}@{step}: {ended}"
        if verb in RECORD:
            # The program that `run` runs may get it.
            assert ended.code in (ABORTED, 3, 128 + number) if verb == "run" else (ABORTED, 0), (
                reported
            )
            assert ended.screen.count(ENTER) == ended.screen.count(LEAVE)
        elif not ended.left and step < 0.8 * total:
            assert ended.code == ABORTED, reported
        files = written(folder)
        assert ended.code == ABORTED or verb != "attach" or len(files) == 3, reported
        # What came when all was done aborts, too.
        assert ended.code != ABORTED or verb in ("run", "report to a file") or not files, reported


@pytest.mark.parametrize("number", [INT, *in_full(TERM, HUP)])
def test_serve_ends_at_one_signal_when_its_uprobe_helper_was_killed(
    number: signal.Signals, target: Target
) -> None:
    with Server("--pid", str(target.pid), "--continuous", "--profile", "block") as server:
        assert server.ready
        await_probes(target.pid, True)
        (helper,) = helpers(server.pid)
        os.kill(helper, signal.SIGKILL)
        server.send(number)
        assert server.finish() == 0
        assert not [words for words in NEVER_SAID if words in server.said]
    await_no_probes(target.pid)
