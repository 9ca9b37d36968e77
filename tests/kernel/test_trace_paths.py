"""`ebpfprof trace --path` and `--waits-for`, on real programs that measure what they do."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ebpfprof.errors import ExitCode
from tests.kernel.programs import program
from tests.kernel.test_trace_command import started, trace, working
from tests.targets_run import DEADLINE_S, Target

NS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
HALF = 0.5
ROUNDING = 0.006  # of three digits
OWN = ("own CPU", "run queue", "ran, thread without a processor", "system call")


@dataclass
class Row:
    """A row of a tree: how deep it is, what it says, and its ns."""

    depth: int
    text: str
    ns: float


def rows(text: str, heading: str) -> list[Row]:
    """The rows of the tree below a heading."""
    lines = text[text.index(heading) :].splitlines()
    first = next(at for at, line in enumerate(lines) if "What it depended on" in line) + 1
    column = lines[first - 1].index("What it")
    found = []
    for line in lines[first:]:
        time = re.match(r"\s*([\d.]+) (\w+)\s+[\d.]+%", line)
        if not time:
            break
        what = line[column:]
        depth = (len(what) - len(what.lstrip())) // 2
        found.append(Row(depth, what.strip(), float(time[1]) * NS[time[2]]))
    return found


@contextmanager
def serving() -> Iterator[tuple[Target, dict[str, str]]]:
    with Target.start(program("answers")) as target:
        addresses = json.loads(target.expect("{"))
        yield target, addresses
        target.kill()


def ended(tracing: subprocess.Popen[str]) -> str:
    """What it prints once it was asked to end."""
    tracing.send_signal(signal.SIGINT)
    output, errors = tracing.communicate(timeout=DEADLINE_S)
    assert tracing.returncode == ExitCode.OK, errors
    return output


def test_a_path_names_who_kept_it_waiting(tmp_path: Path) -> None:
    """A lock, held by one that waits for another lock, held by one that reads from a pipe."""
    with working("chains", tmp_path) as target:
        output = trace(
            *(str(target.pid), "-d", "0.6", "--max-overhead", "0", "-o", str(tmp_path / "a.trace")),
            *("--path", "main.chains.func1", "--waits-for"),
        )
    assert output.code == ExitCode.OK, output.stderr
    tree = rows(output.stdout, "The time of main.chains.func1")
    assert [(row.depth, row.text.split(" in ")[0]) for row in tree[:3]] == [
        (0, "sync.Mutex.Lock"),
        (1, "held by main.chains.func2: sync.Mutex.Lock"),
        (2, "held by main.chains.func3: IO a pipe"),
    ]
    assert tree[2].ns > 0.9 * tree[0].ns
    waits = output.stdout[output.stdout.index("Who waits for whom") :]
    assert re.search(r"main\.chains\.func1 \(sync.Mutex.Lock.*\n\s+for main\.chains\.func2", waits)
    assert re.search(r"\d ms .* in the end main\.chains\.func3: IO a pipe", waits)


def test_requests_of_a_connection_and_what_the_lock_s_holder_did_meanwhile(tmp_path: Path) -> None:
    """The target says how long its handlers took and waited, by its own clock."""
    with serving() as (target, addresses):
        tracing = started(
            *("--pid", str(target.pid), "-d", "60", "-o", str(tmp_path / "a.trace")),
            *("--max-overhead", "0", "--path", addresses["client"]),
        )
        reported = json.loads(target.ask("ask 10", "{"))
        output = ended(tracing)
    assert f"Requests on {addresses['client']}:" in output
    counts = re.findall(r"^  (\d+) requests?(?: more)?\b", output, re.MULTILINE)
    assert sum(map(int, counts)) == 10
    assert re.search(r"the slowest took .* \(G\d+ net/http\.\(\*conn\)\.serve\)", output)
    tree = rows(output, "What their time depended on")
    lock, network = tree[0], tree[1]
    assert lock.text == "sync.Mutex.Lock main.cache in main.handle"
    assert network.text == (
        f"held by main.main.func2: network {addresses['backend']} in main.holds"
    )
    own_ns = sum(row.ns for row in tree if row.depth == 0 and row.text.startswith(OWN))
    # From before the lock to behind it there is more than the wait, but only of these kinds.
    most = 1 + ROUNDING
    assert lock.ns <= reported["waited_ns"] * most
    assert reported["waited_ns"] <= (lock.ns + own_ns) * most
    assert network.ns <= min(reported["read_ns"], lock.ns) * most
    assert reported["handled_ns"] <= sum(row.ns for row in tree if row.depth == 0) * most
    # On a busy machine the slowest may have waited for a processor instead, or the holder did.
    slowest = rows(output, "The slowest")
    took_ns = sum(row.ns for row in slowest if row.depth == 0)
    by_network_ns = sum(row.ns for row in slowest if row.text == network.text)
    assert by_network_ns < HALF * took_ns or re.search(
        r"The slowest: .*\n\d+ % of that time it waited for main.cache \(sync.Mutex.Lock\), held "
        rf"by main.main.func2, which waited for the network \({addresses['backend']}\)\.",
        output,
    )


@pytest.mark.full
def test_requests_of_http_2_are_those_of_its_handlers(tmp_path: Path) -> None:
    """Two at a time on one connection, which one goroutine reads."""
    with serving() as (target, addresses):
        tracing = started(
            *("--pid", str(target.pid), "-d", "60", "-o", str(tmp_path / "a.trace")),
            *("--max-overhead", "0", "--path", f":{addresses['server'].rpartition(':')[2]}"),
        )
        reported = json.loads(target.ask("frames 10", "{"))
        output = ended(tracing)
    assert "  10 requests on " in output
    assert re.search(r"the slowest took .* \(G\d+ .*erverConn\)\.runHandler\)", output)
    tree = rows(output, "What their time depended on")
    assert tree[0].text == "sync.Mutex.Lock main.cache in main.handle"
    assert tree[0].ns <= reported["waited_ns"] * (1 + ROUNDING)
    assert reported["handled_ns"] <= sum(row.ns for row in tree if row.depth == 0) * (1 + ROUNDING)


@pytest.mark.full
def test_a_path_without_goroutines_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    with working("sleeps", tmp_path) as target:
        output = trace(str(target.pid), "-d", "0.1", "-o", str(path), "--path", "main.nobody")
    assert output.code == ExitCode.OK, output.stderr
    assert "No such goroutine" in output.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from", "1s"], "--from and --to need --path."),
        (["--path", "G1", "--from", "2s", "--to", "1s"], "--to must be later than --from."),
    ],
)
def test_moments_that_make_no_sense_are_refused(arguments: list[str], message: str) -> None:
    output = trace("1", *arguments)
    assert output.code == ExitCode.USAGE
    assert message in output.stderr
