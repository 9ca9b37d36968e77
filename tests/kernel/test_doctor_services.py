"""What `doctor` says of services: a leak, a leak whose goroutines move, a deadlock, no fault."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.kernel.programs import program
from tests.kernel.verbs import verb
from tests.targets_run import Target

IDS = r"goroutines \d+(, \d+){9} and [\d,]+ more: chan send, for at least"
_SERVICES = ("leak", "movingleak", "healthy", "deadlock")


@pytest.fixture(scope="module")
def services() -> Iterator[dict[str, Target]]:
    programs = {name: program(f"services/{name}") for name in _SERVICES}
    with ExitStack() as held:
        # The moving leak last: the longer it runs, the smaller is the part that comes in a second.
        started = {
            name: held.enter_context(Target.start(programs[name]))
            for name in sorted(_SERVICES, key=lambda name: name == "movingleak")
        }
        yield started


def test_doctor_says_what_is_wrong_with_each_of_several_services_first(
    services: dict[str, Target],
) -> None:
    pids = [str(services[name].pid) for name in _SERVICES]
    output = verb("doctor", "--apart", "1s", *(word for pid in pids for word in ("--pid", pid)))
    lines = output.stdout.splitlines()[: len(pids)]
    assert [line.partition(":")[0] for line in lines] == [
        f"{pid} ({name})" for pid, name in zip(pids, _SERVICES, strict=True)
    ]
    leak, moving, healthy, deadlock = (line.partition(": ")[2] for line in lines)
    assert re.match(r"Probably a leak: [\d,]+ goroutines wait to send, and have not moved", leak)
    assert re.match(
        r"Perhaps a leak: goroutines that main\.openSession \(main\.go:\d+\) created grew from "
        r"[\d,]+ to [\d,]+ in ",
        moving,
    )
    assert healthy == "No fault was found."
    assert deadlock.startswith("Deadlock: 2 goroutines wait for each other.")
    assert "created by main.firstResult" in output.stdout
    assert re.search(IDS, output.stdout)
    progress = output.stderr.splitlines()
    assert len(progress) == len(pids)
    assert progress[0] == f"Sampling process {pids[0]} for 1.00 s (1 of 4) ..."


def test_doctor_prints_one_message_once() -> None:
    with Target.start(program("sleeper")) as target:
        pid = str(target.pid)
    output = verb("doctor", "--pid", pid, "--pid", pid)
    assert output.code != 0
    assert sum("ebpfprof: " in line for line in output.stderr.splitlines()) == 1


@pytest.mark.full
def test_watch_finds_a_leak_whose_goroutines_move(services: dict[str, Target]) -> None:
    def watched(name: str) -> list[dict[str, object]]:
        pid = str(services[name].pid)
        output = verb("dump", "--watch", "--every", "1", "-d", "4", "--json", "--pid", pid)
        samples = [json.loads(line) for line in output.stdout.splitlines()]
        suspects: list[dict[str, object]] = samples[-1]["suspects"]
        return suspects

    (found,) = watched("movingleak")
    assert found["moving"]
    assert found["only_grows"]
    assert isinstance(found["created_by"], dict)
    assert found["created_by"]["function"] == "main.openSession"
    assert watched("healthy") == []
