"""Each program on which explain is judged starts, gets ready under load and ends."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faults.programs import DEBUGGED, PROGRAMS, JudgedProgram


def start_and_end(program: JudgedProgram) -> str:
    with program.start() as target:
        return target.errors


def is_debugged(program: JudgedProgram) -> bool:
    return program.environment == DEBUGGED


@pytest.mark.full
def test_each_program_gets_ready_and_ends() -> None:
    for program in PROGRAMS:
        program.build()  # before programs run side by side
    with ThreadPoolExecutor(8) as pool:
        errors = dict(zip(PROGRAMS, pool.map(start_and_end, PROGRAMS), strict=True))
    assert [program for program, text in errors.items() if text and not is_debugged(program)] == []
