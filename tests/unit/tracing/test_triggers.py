"""Conditions that end a recording, of a process whose memory can't be read."""

from __future__ import annotations

from ebpfprof.goruntime.goroutines.all_goroutines import GoroutineScanner
from ebpfprof.tracing.triggers import MANY, Trigger
from symbolizer.codeanalysis.globals import allgs_address
from tests.images.image import VERSIONS, image
from tests.images.pages import PAGE_SHIFT, ChangedBytes


class FadingMemory(ChangedBytes):
    """Memory of which the list of goroutines can't be read while `is_gone`."""

    def __init__(self) -> None:
        super().__init__(image(VERSIONS[-1]).memory, {}, frozenset())
        with image(VERSIONS[-1]).opened() as go:
            self._page = allgs_address(go.binary) + go.load_bias >> PAGE_SHIFT

    def fade(self, *, is_gone: bool) -> None:
        self._gone = frozenset({self._page} if is_gone else ())


def test_samples_that_fail_are_reported_once() -> None:
    memory = FadingMemory()
    now_s = 0.0
    with image(VERSIONS[-1]).opened(memory) as go:
        trigger = Trigger(go, goroutines=1 << 20, clock=lambda: now_s)

        def sample() -> str:
            nonlocal now_s
            now_s += 60
            assert not trigger.is_met()
            warning, trigger.warning = trigger.warning, ""
            return warning

        assert sample() == ""
        memory.fade(is_gone=True)
        assert [sample() for _ in range(MANY - 1)] == [""] * (MANY - 1)
        memory.fade(is_gone=False)
        assert sample() == ""
        memory.fade(is_gone=True)
        found = [sample() for _ in range(2 * MANY)]
    begin = "samples fail, so a condition may be met unnoticed: "
    assert [bool(each) for each in found] == [n == MANY - 1 for n in range(2 * MANY)]
    assert found[MANY - 1].startswith(begin)


def test_the_number_of_goroutines_is_a_condition() -> None:
    with image(VERSIONS[-1]).opened() as go:
        number = len(GoroutineScanner(go).scan().goroutines)
        assert not Trigger(go, goroutines=number).is_met()
        trigger = Trigger(go, goroutines=number - 1)
        assert trigger.is_met()
    assert trigger.why == f"there are {number} goroutines"
