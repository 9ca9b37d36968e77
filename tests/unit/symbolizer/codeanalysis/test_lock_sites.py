"""Which locks functions may hold at their calls, in real programs of each Go version."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from symbolizer import GoBinary
from symbolizer.codeanalysis.lock_sites import LockPlace, LockSites
from symbolizer.x86.disasm import decode
from tests.builds import builds, versions
from tests.programs import saved

# Where the locks of main.vault are (tests/targets/oncall/locks.go).
_MU, _RW, _OTHER = 40 * 8, 40 * 8 + 8, 40 * 8 + 32
LOCK = ("lockSlow", "Lock", "RLock")
# By function: a call while it holds the lock, and that lock.
HOLDING = {
    "main.(*vault).hold": ("time.Sleep", LockPlace(0, _MU)),
    "main.(*vault).read": ("runtime.chanrecv1", LockPlace(0, _RW, True)),
    "main.(*vault).holdWrite": ("runtime.selectgo", LockPlace(0, _OTHER)),
    "main.(*account).total": ("main.(*account).size", LockPlace(0, 0)),
    "main.(*vault).readTwice": ("main.(*vault).readInside", LockPlace(0, _RW, True)),
    "main.transfer": ("runtime.chanrecv1", LockPlace(0, 0)),
}


def sites(minor: str, mode: str, target: str = "oncall") -> tuple[GoBinary, LockSites]:
    binary = saved.binary(target, minor, mode)
    return binary, LockSites(binary)


def calls(binary: GoBinary, name: str) -> Iterator[tuple[str, int]]:
    """What a function calls directly, with the return addresses."""
    (function,) = binary.functions_named(name)
    code = binary.elf.read(function.entry, function.end - function.entry)
    for each in decode(code, function.entry):
        if each.is_call and each.target is not None:
            called = binary.function_at(each.target)
            assert called
            yield called.name, each.end


@pytest.mark.parametrize(("minor", "mode"), builds())
def test_locks_that_are_held_at_a_call(minor: str, mode: str) -> None:
    binary, found = sites(minor, mode)
    for name, (called, place) in HOLDING.items():
        held = {found.held(pc) for to, pc in calls(binary, name) if to == called}
        assert held == {(place,)}, name


@pytest.mark.parametrize(("minor", "mode"), builds())
def test_a_lock_is_not_held_before_it_is_there_nor_after_its_release(minor: str, mode: str) -> None:
    binary, found = sites(minor, mode)
    for name in ("main.(*vault).hold", "main.(*vault).read", "main.holdShared"):
        for called, pc in calls(binary, name):
            if called.endswith(LOCK) or called.startswith("runtime.morestack"):
                assert found.held(pc) == (), (name, called)
    last = [pc for to, pc in calls(binary, "main.release") if to == "runtime.chanrecv1"]
    assert [found.held(pc) for pc in last] == [()]


@pytest.mark.parametrize("minor", versions("1.19", "1.27"))
def test_a_package_variable_is_known_by_its_address(minor: str) -> None:
    binary, found = sites(minor, "plain")
    (pc,) = (pc for to, pc in calls(binary, "main.holdShared") if to == "runtime.chanrecv1")
    (place,) = found.held(pc)
    assert place.offset is None
    assert place.variable > binary.text_end


# By function of tests/targets/stuck/locks.go: a call, whether it surely holds a lock there, and
# whether it may have unlocked one of its callers'.
SURENESS = {
    "main.move": ("runtime.chanrecv1", True, ()),
    "main.(*shop).tillThenStaff": ("main.enter", True, ()),
    "main.(*shop).readThenStock": ("main.enter", True, ()),
    "main.(*account).takeAndAwait": ("main.(*account).await", True, ()),
    "main.(*account).await": ("main.enter", False, (LockPlace(0, 0),)),
    "main.perhaps": ("main.enter", False, ()),
    "main.balanced": ("main.enter", False, ()),
}


@pytest.mark.parametrize(("minor", "mode"), builds())
def test_a_lock_is_surely_held_if_each_way_to_the_call_takes_it(minor: str, mode: str) -> None:
    binary, found = sites(minor, mode, "stuck")
    for name, (called, is_sure, released) in SURENESS.items():
        pcs = [pc for to, pc in calls(binary, name) if to == called]
        assert pcs, name
        for pc in pcs:
            assert any(place.is_sure for place in found.held(pc)) is is_sure, name
            assert found.released(pc) == released, name
    (pc,) = (pc for to, pc in calls(binary, "main.perhaps") if to == "main.enter")
    assert found.held(pc) == (LockPlace(0, 0),)
    (pc,) = (pc for to, pc in calls(binary, "main.again") if to.endswith(LOCK))
    assert [(place, place.is_sure) for place in found.held(pc)] == [(LockPlace(0, 0), False)]


def test_addresses_outside_of_functions_hold_nothing() -> None:
    binary, found = sites("1.27", "plain")
    for pc in (0, 1, binary.text_start, binary.text_end, 1 << 60):
        assert found.held(pc) == ()
