"""`ebpfprof dump` tells for which lock goroutines wait, who may hold it, and finds deadlocks."""

from __future__ import annotations

import json

import pytest

from ebpfprof.errors import ExitCode
from tests.builds import builds, in_full
from tests.kernel.oncall_program import oncall
from tests.kernel.parked_program import running
from tests.kernel.programs import program
from tests.kernel.verbs import verb
from tests.targets_run import Target

TYPES = {
    "lockShared": "sync.Mutex",
    "lock": "sync.Mutex",
    "write": "sync.RWMutex",
    "readLater": "sync.RWMutex",
    "waitForGroup": "sync.WaitGroup",
    "waitForCond": "sync.Cond",
}
NAMES = {
    "lockShared": "main.shared.mu",
    "lock": "main.vault.mu",
    "waitForGroup": "main.vault.pending",
}


def assert_right_or_none(names: dict[str, str | None]) -> None:
    """Without DWARF: types of the heap, or places of package variables; never another name."""
    wrong = {n: s for n, s in names.items() if s and s != NAMES[n] and not s.startswith(".")}
    assert wrong == {}
    assert names["lock"] == NAMES["lock"]


@pytest.mark.parametrize(("version", "mode"), builds())
def test_locks_have_their_address_their_state_and_their_holder(version: str, mode: str) -> None:
    with oncall(version, mode) as run:
        found = run.dump("--apart", "0")
        facts = run.facts
    waits = {name: found[each["id"]]["waits_for"] for name, each in facts.items()}
    locks = {name: each["lock"] for name, each in waits.items() if each and "lock" in each}
    assert {name: each["type"] for name, each in locks.items()} == TYPES
    for name, each in locks.items():
        assert int(each["address"], 16) == facts[name]["address"], name
        holder = facts[name]["holder"]
        assert each["may_be_held_by"] == ([holder] if holder else []), name
    if mode not in ("stripped", "nosymbols"):
        assert {name: locks[name]["name"] for name in NAMES} == NAMES
    else:
        assert_right_or_none({name: locks[name].get("name") for name in NAMES})
    assert (locks["lock"]["locked"], locks["lock"]["waiters"]) == (True, 1)
    assert (locks["write"]["readers"], locks["write"]["writer_waits"]) == (1, True)
    assert (locks["readLater"]["readers"], locks["readLater"]["locked"]) == (0, True)
    assert locks["waitForGroup"]["counter"] == 3
    assert locks["waitForCond"]["waiters"] == 1


@pytest.mark.parametrize("version", in_full("1.17", "1.18"))
def test_a_wait_group_whose_semaphore_is_elsewhere_is_left_out(version: str) -> None:
    """In Go 1.17, if its address is no multiple of eight: better no lock than a wrong one."""
    with Target.start(program("unaligned", version)) as target:
        _, aligned, other = target.ask("where", "groups").split()
        dumped = verb("dump", "--json", "--apart", "0", "--pid", str(target.pid))
    assert dumped.code == ExitCode.OK, dumped.stderr
    waits = [load["waits_for"] for load in json.loads(dumped.stdout)["goroutines"]]
    found = {int(each["lock"]["address"], 16) for each in waits if each and "lock" in each}
    assert int(other) % 8 == (4 if version == "1.17" else 0)
    assert found == ({int(aligned)} if version == "1.17" else {int(aligned), int(other)})


@pytest.mark.parametrize(("version", "mode"), builds())
def test_semaphores_of_all_waits_are_those_of_the_program(version: str, mode: str) -> None:
    """Of deep stacks, of several waiters for one lock."""
    offsets = {"lockMutex": 4, "readLock": 12, "writeLock": 8, "writeLockQueued": 4, "wait": 8}
    with running(version, mode) as run:
        output = verb("dump", "--json", "--apart", "0", "--pid", str(run.target.pid))
        run.target.kill()
    assert output.code == ExitCode.OK, output.stderr
    found = {load["id"]: load["waits_for"] for load in json.loads(output.stdout)["goroutines"]}
    for name, offset in (*offsets.items(), ("deepLock", 4)):
        report = run.reports[name]
        for goid in report["goids"]:
            lock = found[goid]["lock"]
            assert int(lock["address"], 16) == report["sema"] - offset, name
    mutex = found[run.reports["lockMutex"]["goids"][0]]["lock"]
    assert (mutex["locked"], mutex["waiters"]) == (True, 3)
    conditions = [found[goid]["lock"] for goid in run.reports["condWait"]["goids"]]
    assert {condition["type"] for condition in conditions} == {"sync.Cond"}
    assert {each["waiters"] for each in conditions} == {6}
    # None of them holds the lock that it gave back while it waits.
    assert not any(each["may_be_held_by"] for each in conditions)


@pytest.mark.parametrize(("version", "mode"), builds())
def test_circles_of_waits_are_deadlocks(version: str, mode: str) -> None:
    with oncall(version, mode) as run:
        facts = run.ask("deadlock")
        output = verb("dump", "--json", "--pid", str(run.target.pid))
    assert output.code == ExitCode.OK, output.stderr
    found = {frozenset(circle) for circle in json.loads(output.stdout)["deadlocks"]}
    ids = {name: each["id"] for name, each in facts.items()}
    assert found == {
        frozenset({ids["transferOne"], ids["transferOther"]}),
        frozenset({ids["total"]}),
        frozenset({ids["readTwice"], ids["writeBetween"]}),
    }


def test_the_text_names_locks_holders_and_deadlocks() -> None:
    with oncall() as run:
        calm = run.text()
        facts = run.ask("deadlock")
        text = run.text()
    assert "deadlock" not in calm.lower()
    shared = run.facts["lockShared"]
    assert (
        f"\n    for main.shared.mu (sync.Mutex at {shared['address']:#x})\n"
        f"    it may be held by goroutine {shared['holder']}\n" in text
    )
    assert "which 1 reader holds; a writer waits\n" in text
    assert "(sync.WaitGroup at " in text
    assert ", counter 3\n" in text
    one, other = facts["transferOne"]["id"], facts["transferOther"]["id"]
    first, second = sorted((one, other))
    top = text[: text.index("1 goroutine: ")]
    assert "\nDeadlock: 2 goroutines wait for each other.\n" in top
    assert f"    goroutine {first} waits in main.transfer, locks.go:" in top
    assert "for main.account.mu (sync.Mutex at 0x" in top
    assert f": goroutine {second} holds it\n" in top
    alone = facts["total"]["id"]
    assert f"\nDeadlock: goroutine {alone} waits for itself.\n" in top
    assert f"goroutine {facts['writeBetween']['id']} wants to write first" in top
