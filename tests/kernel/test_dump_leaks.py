"""`ebpfprof dump --watch`: which groups of goroutines only grow."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ebpfprof.errors import ExitCode
from tests.builds import versions
from tests.kernel.oncall_program import OnCall, oncall
from tests.kernel.verbs import verb


@contextmanager
def watching(run: OnCall, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "ebpfprof", "dump", "--watch", "--every", "0.2"]
    command += ["--pid", str(run.target.pid), *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def next_sample(process: subprocess.Popen[str]) -> dict[str, Any]:
    """A sample that began after this call: the next line may be of one that had begun before."""
    assert process.stdout
    process.stdout.readline()
    found: dict[str, Any] = json.loads(process.stdout.readline())
    return found


def innermost(suspects: dict[str, Any]) -> str:
    names: list[str] = [frame["function"] for frame in suspects["stack"]]
    return next(name for name in names if name.startswith("main."))


def test_a_group_that_only_grows_is_reported_and_no_other() -> None:
    with oncall() as run, watching(run, "--json") as process:
        next_sample(process)
        for _ in range(3):
            for command, answer in (("leak 3", "leaked"), ("turn", "turned")):
                run.target.ask(command, answer)
            sample = next_sample(process)
        growing = [each for each in sample["suspects"] if each["only_grows"]]
        assert {innermost(each) for each in growing} == {"main.leaky"}
        (leak,) = growing
        assert leak["count"] == 9
        # Since the sample before it was there.
        assert leak["growth_per_minute"] > 9 * 60 / sample["seconds"]
        assert 0 < leak["oldest_at_least_s"] <= sample["seconds"]
        assert not leak["can_never_go_on"]
        assert leak["created_by"]["function"] == "main.begin"
        # It stops growing: it is still reported, with a lower rate, because it never shrank.
        later = next_sample(process)
        (still,) = [each for each in later["suspects"] if each["only_grows"]]
        assert still["count"] == 9
        assert still["growth_per_minute"] < leak["growth_per_minute"]
        process.send_signal(signal.SIGINT)
        assert process.wait() == ExitCode.OK


def test_a_group_whose_members_move_is_not_a_leak() -> None:
    """main.work grows by two goroutines at each turn, and all of them get work."""
    with oncall() as run, watching(run, "--json") as process:
        for _ in range(4):
            run.target.ask("turn", "turned")
            sample = next_sample(process)
        assert [each for each in sample["suspects"] if each["only_grows"]] == []


@pytest.mark.full
def test_leaks_are_reported_although_others_move_at_the_same_line() -> None:
    with oncall() as run, watching(run, "--json") as process:
        busy = {each["id"] for each in run.ask("mixed 1").values()}
        growing: list[dict[str, Any]] = []
        for _ in range(200):
            sample = next_sample(process)
            growing = [each for each in sample["suspects"] if each["only_grows"]]
            if growing:
                break
            run.ask("mixed 1")
    (leak,) = growing
    assert innermost(leak) == "main.listen"
    assert len(busy) == 3
    assert not busy & set(leak["some_ids"])
    # Those that move, and leaks that don't wait for long yet.
    assert leak["others"] >= 3
    assert leak["growth_per_minute"] > 0


def test_what_can_never_continue_is_marked() -> None:
    with oncall() as run:
        run.target.ask("stuck", "stuck")
        found = run.dump("--apart", "0")
        stuck = [each for each in found.values() if each["can_never_go_on"]]
        text = run.text("--apart", "0")
        sampled = verb(
            *("dump", "--watch", "--duration", "0.1", "--json", "--pid", str(run.target.pid))
        )
    assert sorted(each["state"] for each in stuck) == [
        "chan receive (nil chan)",
        "chan send (nil chan)",
        "select (no cases)",
    ]
    assert "1 goroutine: select (no cases), did not move, can never go on\n" in text
    assert sampled.code == ExitCode.OK, sampled.stderr
    certain = json.loads(sampled.stdout)["suspects"]
    assert sorted(each["state"] for each in certain) == sorted(each["state"] for each in stuck)
    assert all(each["can_never_go_on"] and not each["only_grows"] for each in certain)


@pytest.mark.full
@pytest.mark.parametrize("version", versions("1.27"))
def test_what_the_runtime_calls_leaked_is_marked(version: str) -> None:
    with oncall(version) as run:
        run.target.ask("leak 4", "leaked")
        before = run.dump("--apart", "0")
        run.target.ask("profile", "profiled")
        after = run.dump("--apart", "0")
        text = run.text("--apart", "0")
    assert not any(each["leaked"] for each in before.values())
    leaked = [each for each in after.values() if each["leaked"]]
    assert len(leaked) >= 4
    assert (
        sum(any(frame["function"] == "main.leaky" for frame in each["stack"]) for each in leaked)
        == 4
    )
    assert "leaked, as Go's runtime reported\n" in text


def test_the_text_shows_rate_number_and_age() -> None:
    with oncall() as run, watching(run) as process:
        assert process.stdout
        lines = []
        for _ in range(3):
            run.target.ask("leak 2", "leaked")
            for _ in range(2):
                while not (line := process.stdout.readline()).startswith("process "):
                    lines.append(line)
                lines.append(line)
        process.send_signal(signal.SIGTERM)
        text = "".join(lines) + process.stdout.read()
        assert process.wait() == ExitCode.OK
    assert "; 1 group only grows\n" in text
    assert re.search(r" a minute, 6 now, for at least [^:]+ to [^:]+: chan receive", text)
    assert "main.leaky" in text


def test_a_watch_ends_with_the_last_process() -> None:
    with oncall() as run, watching(run, "--json") as process:
        next_sample(process)
        run.target.kill()
        assert process.wait() == ExitCode.TARGET_GONE
        assert process.stderr
        assert f"The memory of process {run.target.pid} can no longer be read" in (
            process.stderr.read()
        )


def test_options_that_make_no_sense_together_are_refused() -> None:
    for arguments in (
        ("--every", "1"),
        ("--duration", "1"),
        ("--watch", "--all"),
        ("--watch", "--apart", "1"),
    ):
        output = verb("dump", "--pid", "1", *arguments)
        assert output.code == ExitCode.USAGE
        assert "--watch" in output.stderr
