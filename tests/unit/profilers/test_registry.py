"""Which kinds exist, which can be chosen, and which kind a file has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ebpfprof.profile.kind import ProfileKind
from ebpfprof.profile.model import ValueType
from ebpfprof.profilers.cpu.kind import CPU
from ebpfprof.profilers.heap.kind import ALLOCS, HEAP
from ebpfprof.profilers.registry import (
    find_kind,
    kind_named,
    kind_of,
    kind_with_option,
    kinds,
    kinds_of_any_program,
    kinds_to_choose,
    registered,
)
from ebpfprof.profilers.waits.kinds import OPEN


def made_up(name: str, key: str) -> ProfileKind:
    return replace(CPU, name=name, key=key, options=())


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(made_up("cpu", "?"), id="its name"),
        pytest.param(made_up("other", CPU.key), id="its key"),
        pytest.param(replace(CPU, name="other", key="?"), id="its option"),
    ],
)
def test_what_one_kind_has_no_other_can_have(kind: ProfileKind) -> None:
    before = kinds()
    with pytest.raises(ValueError, match="already"), registered(kind):
        pass
    assert kinds() == before


def test_several_kinds_have_no_key() -> None:
    with registered(made_up("other", "")) as other, registered(made_up("third", "")) as third:
        assert kinds()[-2:] == (other, third)


def test_a_kind_is_there_as_long_as_it_is_registered() -> None:
    with registered(made_up("other", "?")) as other:
        assert find_kind("other") is kind_named("other") is other
    assert find_kind("other") is None
    with pytest.raises(KeyError):
        kind_named("other")


def test_open_waits_are_chosen_by_an_option_alone() -> None:
    assert kinds_to_choose() == tuple(kind for kind in kinds() if kind is not OPEN)
    assert kind_with_option("hz") is CPU


def test_cpu_alone_needs_no_go_program() -> None:
    assert kinds_of_any_program() == (CPU,)


@pytest.mark.parametrize(
    ("default", "kind"), [("alloc_space", ALLOCS), ("inuse_space", HEAP), ("", HEAP)]
)
def test_the_default_type_says_which_kind_of_the_same_types_a_file_has(
    default: str, kind: ProfileKind
) -> None:
    assert kind_of(HEAP.sample_types, [], default) is kind


@pytest.mark.parametrize("types", [(), CPU.sample_types[:1], CPU.sample_types[::-1]])
def test_a_file_with_other_types_is_of_no_kind(types: tuple[ValueType, ...]) -> None:
    assert kind_of(types, []) is None
