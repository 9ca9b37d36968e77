"""What the wrappers call that the compiler makes for `go` statements with arguments."""

from __future__ import annotations

import pytest

from symbolizer import ElfFile, GoBinary
from tests.kernel.programs import program
from tests.toolchains import MINORS

pytestmark = pytest.mark.machine


@pytest.mark.parametrize(
    ("minor", "mode"), [*((minor, "plain") for minor in MINORS), (MINORS[-1], "pie")]
)
def test_a_wrapper_names_what_it_wraps(minor: str, mode: str) -> None:
    with ElfFile.open(program("load", minor, mode)) as elf:
        binary = GoBinary.open(elf)
        wrapped = {}
        for function in binary.functions():
            if function.name.startswith("main."):
                inner = binary.function_at(binary.wrapped(function.entry))
                assert inner is not None
                wrapped[function.name] = inner.name
    assert wrapped["main.produce"] == "main.produce"
    others = {inner for name, inner in wrapped.items() if name != inner}
    assert {"main.produce", "main.waitForEver", "main.waitSinceBefore"} <= others
