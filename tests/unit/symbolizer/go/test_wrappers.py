"""What the wrappers call that the compiler makes for `go` statements with arguments."""

from __future__ import annotations

import pytest

from tests.builds import GENERIC, builds
from tests.programs import saved
from tests.toolchains import MINORS


@pytest.mark.parametrize(
    ("minor", "mode"), builds(*((minor, "plain") for minor in GENERIC), (MINORS[-1], "pie"))
)
def test_a_wrapper_names_what_it_wraps(minor: str, mode: str) -> None:
    binary = saved.binary("blockops", minor, mode)
    wrapped = {}
    for function in binary.functions():
        if function.name.startswith("main."):
            inner = binary.function_at(binary.wrapped(function.entry))
            assert inner is not None
            wrapped[function.name] = inner.name
    assert wrapped["main.goWithArguments"] == "main.goWithArguments"
    others = {inner for name, inner in wrapped.items() if name != inner}
    assert {"main.goWithArguments", "main.(*worker).goMethod"} <= others
