"""Processes as surveys describe them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ebpfprof.discovery.processes import GoProcess, started_ns
from tests.targets_run import Target

SHOP = GoProcess(
    pid=4_194_400,  # no process has it: it is above PID_MAX_LIMIT
    name="shop",
    command="/srv/shop -port 80",
    user="www",
    go_version="go1.27.3",
    build_mode="exe",
    container=None,
    supported=True,
    why_not="",
    executable="/srv/shop",
    module="example.com/shop",
    module_version="v1.2.3",
)


def described(pid: int, **changes: object) -> GoProcess:
    """A process that runs, as a Go program."""
    executable = os.readlink(f"/proc/{pid}/exe")
    about = replace(
        SHOP, pid=pid, started_ns=started_ns(pid), executable=executable, module_version=""
    )
    return replace(about, name=Path(f"/proc/{pid}/comm").read_text().strip(), **changes)  # type: ignore[arg-type]  # any of its fields


@contextmanager
def with_environment(**env: str) -> Iterator[int]:
    """The pid of a process that waits and has this environment."""
    with Target.start(Path("/bin/sh"), "-c", "echo ready $$; read x; exit 0", env=env) as running:
        yield running.pid
