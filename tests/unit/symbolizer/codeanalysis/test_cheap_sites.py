"""Where a probe on the way to a call may be: as hand-written code."""

from __future__ import annotations

import pytest

from symbolizer.codeanalysis.cheap_sites import before_call
from symbolizer.x86.disasm import is_cheap

BASE = 0x401000
CALL = "e800000000"


@pytest.mark.parametrize(
    ("before", "chosen", "after"),
    [
        pytest.param("90 90", 1, "c3", id="the nearest nop"),
        pytest.param("90 7402 31c0", 1, "c3", id="a jump that stays on the way"),
        pytest.param("90 7407 31c0", 5, "c3", id="one that passes the call by"),
        pytest.param("90 90 31c0", 4, "ebf7 c3", id="another way leads in behind the nop"),
        pytest.param("90 90 31c0", 1, "ebf6 c3", id="another way leads to the nop itself"),
        pytest.param("90 55", 2, "c3", id="another stack"),
        pytest.param("90 4889e5", 4, "c3", id="another frame"),
        pytest.param("90 4c8b3424", 5, "c3", id="another goroutine"),
        pytest.param(f"90 90 {CALL}", 7, "c3", id="a call in between"),
        pytest.param("90 90" + 100 * "f9", 102, "c3", id="too far"),
        pytest.param("31c0 31c0", 4, "c3", id="none"),
        pytest.param("90", 1, "c3", id="never a function's first instruction"),
    ],
)
def test_a_cheap_place_is_passed_if_and_only_if_the_call_is(
    before: str, chosen: int, after: str
) -> None:
    code = bytes.fromhex(before)
    call_pc = BASE + len(code)
    found = before_call(code + bytes.fromhex(CALL + after), BASE, call_pc)
    assert found - BASE == chosen


def test_a_call_that_is_not_an_instruction_is_left_alone() -> None:
    assert before_call(bytes.fromhex("90 90 e800000000"), BASE, BASE + 3) == BASE + 3


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("90", True),
        ("eb00", True),
        ("e900000000", True),
        ("7600", True),
        ("0f8600000000", True),
        ("55", False),
        ("4154", False),
        ("e800000000", False),
        ("6690", False),
    ],
)
def test_pushes_and_calls_are_not_cheap(code: str, expected: bool) -> None:
    assert is_cheap(bytes.fromhex(code)) is expected
