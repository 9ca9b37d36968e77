"""Where annotations have their probes."""

from __future__ import annotations

from symbolizer.codeanalysis.annotation_sites import annotation_sites, before_frame
from symbolizer.x86.disasm import decode
from tests.unit.symbolizer.go_programs import binary


def test_the_place_is_behind_the_stack_check_and_before_the_frame() -> None:
    new = bytes.fromhex("493b6610 7605 55 4889e5 c3")  # cmp rsp, [r14+16]; jbe; push rbp
    assert before_frame(decode(new, 0)) == 6
    old = bytes.fromhex("493b6610 7605 4883ec28 c3")  # Go 1.19: sub rsp, 40
    assert before_frame(decode(old, 0)) == 6


def test_without_a_check_there_is_no_place() -> None:
    assert before_frame(decode(bytes.fromhex("55 4889e5 c3"), 0)) is None
    assert before_frame(decode(bytes.fromhex("90 90"), 0)) is None
    called = bytes.fromhex("493b6610 7605 e800000000 55")  # a call comes first
    assert before_frame(decode(called, 0)) is None


def test_a_program_that_does_not_annotate_has_none() -> None:
    assert annotation_sites(binary()) == ((), ())
