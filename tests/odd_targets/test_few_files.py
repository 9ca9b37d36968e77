"""A shell or a unit that lets ebpfprof open few files."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebpfprof.errors import ExitCode
from tests.kernel.programs import program
from tests.kernel.refusal import refused
from tests.recorder import COMMAND
from tests.targets_run import Target


@pytest.mark.parametrize("limit", [20, 30, 36])
def test_the_limit_of_open_files_is_named(limit: int, tmp_path: Path) -> None:
    """Maps, programs and alarms, each the first to find no number left."""
    command = ("prlimit", f"--nofile={limit}", *COMMAND)
    with Target.start(program("nopprof")) as target:
        output = refused(
            ExitCode.FAILURE,
            *("--pid", str(target.pid), "--max-overhead", "1"),
            folder=tmp_path,
            command=command,
        )
    assert f"The limit of {limit} open files (RLIMIT_NOFILE) is reached" in output
    assert "`ulimit -n 1024`" in output
