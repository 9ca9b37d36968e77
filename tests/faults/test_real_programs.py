"""explain names what is wrong with servers that others wrote, and is silent on a healthy one."""

from __future__ import annotations

from typing import Final

import pytest

from tests.faults.real_programs import REAL_PROGRAMS, RealProgram
from tests.faults.run import run

SECONDS: Final = 8.0
NAMES: Final = ("nats", "etcd-disk", "nats-disk", "etcd-loss", "caddy-quota")
PROGRAMS: Final = [program for program in REAL_PROGRAMS if program.name in NAMES]


@pytest.mark.full
@pytest.mark.alone
@pytest.mark.parametrize("program", PROGRAMS, ids=[program.name for program in PROGRAMS])
def test_the_cause_is_named_first(program: RealProgram) -> None:
    program.build()
    done = run(program, 0, SECONDS, None)
    assert done.is_right, done.kinds
