"""What estimates must know of the stacks of a program."""

from __future__ import annotations

from ebpfprof.goruntime.process import GoTarget
from ebpfprof.profilers.waits.estimates import facts_of_stacks
from ebpfprof.profilers.waits.wait_stacks import StackTranslator
from symbolizer.codeanalysis.cgo_callback import cgo_callback
from symbolizer.codeanalysis.park_sites import probe_sites
from tests.images.target import SavedTarget, Shown
from tests.programs import saved

BIAS = 0x1000


def program() -> GoTarget:
    binary = saved.binary("frames")
    target = SavedTarget(Shown("/usr/bin/frames"))
    sites = probe_sites(binary)
    return GoTarget(target, "", binary, BIAS, (), sites, cgo_callback(binary), None, None)


def entry(go: GoTarget, name: str) -> int:
    (function,) = go.binary.functions_named(name)
    return function.entry


def test_goroutines_are_of_one_group_if_they_began_with_the_same_function() -> None:
    go = program()
    group_of = facts_of_stacks(go, StackTranslator(go)).group_of
    park, begin, end = (
        entry(go, name) + BIAS for name in ("runtime.gopark", "main.exercise", "runtime.goexit")
    )
    expected = entry(go, "main.exercise")
    # A return address may be the first one behind a function that ends with a call.
    (function,) = go.binary.functions_named("main.exercise")
    for return_pc in (begin + 1, begin + 99, function.end + BIAS):
        assert group_of((park + 9, return_pc, end + 1)) == expected
        assert group_of((park + 9, return_pc)) == expected
    assert group_of((park + 9,)) == entry(go, "runtime.gopark")


def test_a_stack_without_a_known_function_is_of_no_group() -> None:
    go = program()
    facts = facts_of_stacks(go, StackTranslator(go))
    for pcs in ((), (1,), (entry(go, "runtime.goexit") + BIAS + 1,)):
        assert facts.group_of(pcs) == 0
        assert not facts.is_lock(pcs)
        assert not facts.is_runtime_lock(pcs)
        assert not facts.is_semaphore(pcs)


def test_a_stack_waits_for_a_semaphore_if_semacquire1_parks_it() -> None:
    go = program()
    is_semaphore = facts_of_stacks(go, StackTranslator(go)).is_semaphore
    begin = entry(go, "main.exercise") + BIAS + 1
    for park in go.sites.parks:
        for parking in ((), (entry(go, "runtime.gopark") + BIAS + 9,)):
            pcs = (*parking, park.return_pc + BIAS, begin)
            assert is_semaphore(pcs) == park.is_semaphore
