"""Where a program with a fault runs: what its container may use, its settings, its neighbours.

Nothing is left, even if this process is killed: a process of its own waits for its end, and then
removes the control groups and the folder of temporary files.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.targets_run import Target

CGROUPS: Final = Path("/sys/fs/cgroup")
_PERIOD_US: Final = 100_000

# A network namespace of its own: only the loopback, on which packets of some ports are lost. They
# are as long as on a real network.
_LOSE: Final = """
ip link set lo mtu 1500 gso_max_segs 1 up || exit 1
probability=$1; shift
while [ "$1" != -- ]; do
    for side in --dport --sport; do
        iptables -A INPUT -p tcp $side "$1" -m statistic --mode random \\
            --probability "$probability" -j DROP || exit 1
    done
    shift
done
shift
exec "$@"
"""
_ENTER: Final = """
while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 1; shift; done
shift
exec "$@"
"""
# The kernel removes a group once its last process is gone.
_CLEAN: Final = """
cat > /dev/null
rm -rf "$1"
shift
for group; do
    [ -d "$group" ] || continue
    tries=0
    until rmdir "$group"; do
        tries=$((tries + 1))
        [ $tries -lt 200 ] || exit 1
        kill -9 $(cat "$group/cgroup.procs")
        sleep 0.05
    done 2> /dev/null
done
"""
_NEIGHBOUR: Final = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0))).start()
while True:
    pass
"""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """How a program is built, what it may use, and what runs beside it."""

    mode: str = "plain"
    """A build mode of tests/toolchains.py."""
    variables: tuple[str, ...] = ()
    """Settings in its environment: "GOGC=10"."""
    cpus: float | None = None
    """How much CPU time its control group may use a second (the quota of CFS)."""
    memory_mib: int | None = None
    """How much memory its control group may use."""
    writes_per_second: int | None = None
    """How many writes to the disk of temporary files its control group may start."""
    reads_per_second: int | None = None
    """How many reads from that disk it may start. What is in memory is not read."""
    has_own_network: bool = False
    """Whether it has a network namespace of its own, with nothing but the loopback."""
    loss: float = 0.0
    """The part of the packets from and to `lossy_ports` of that network that are lost, 0 to 1."""
    lossy_ports: tuple[int, ...] = ()
    neighbours: int = 0
    """Other processes that each use a whole CPU if they can."""


@dataclass(frozen=True)
class _Limit:
    """A limit of a control group: the file and its content, in both versions of control groups."""

    controller: str
    old: tuple[str, str]
    new: tuple[str, str]

    def folder(self, name: str) -> Path:
        """The group of that name which can have this limit. It may not exist yet."""
        hierarchy = CGROUPS / self.controller
        return (hierarchy if hierarchy.is_dir() else CGROUPS) / name

    def set(self, name: str) -> None:
        """Set it for the group of that name, which must exist."""
        folder = self.folder(name)
        if folder.parent == CGROUPS:
            (CGROUPS / "cgroup.subtree_control").write_text(f"+{self.new[0].split('.')[0]}")
            file, text = self.new
        else:
            file, text = self.old
        (folder / file).write_text(text)


@dataclass(frozen=True)
class Container:
    """What is put before the command lines of programs that run in an environment.

    `network` starts a program in its network, `enter` starts it in its control groups.
    `variables` are set for both.
    """

    network: tuple[str, ...]
    enter: tuple[str, ...]
    variables: Mapping[str, str]


@contextmanager
def container(environment: Environment) -> Iterator[Container]:
    """Make an environment, until the block ends. Needs root if it has limits. Raises OSError."""
    with ExitStack() as held:
        scratch = Path(tempfile.mkdtemp(prefix="ebpfprof-faults-"))
        groups = held.enter_context(_groups(_limits(environment, scratch), scratch))
        for _ in range(environment.neighbours):
            held.enter_context(_neighbour())
        variables = dict(setting.split("=", 1) for setting in environment.variables)
        enter = ("/bin/sh", "-c", _ENTER, "sh", *map(str, groups), "--")
        yield Container(_network(environment), enter, {"TMPDIR": str(scratch), **variables})


@contextmanager
def running(program: Path, *arguments: str, environment: Environment) -> Iterator[Target]:
    """Run a program until the block ends; it gets ready first.

    Needs root if there are limits. Raises TargetError or OSError.
    """
    with container(environment) as inside:
        command = (*inside.network, *inside.enter, str(program), *arguments)
        with Target.start(Path(command[0]), *command[1:], env=inside.variables) as target:
            yield target


def _network(environment: Environment) -> tuple[str, ...]:
    if not environment.has_own_network:
        return ()
    ports = map(str, environment.lossy_ports)
    lose = ("/bin/sh", "-c", _LOSE, "sh", str(environment.loss), *ports, "--")
    return ("/usr/bin/unshare", "--net", *lose)


def _limits(environment: Environment, scratch: Path) -> tuple[_Limit, ...]:
    limits = []
    if environment.cpus is not None:
        quota = int(environment.cpus * _PERIOD_US)
        new = ("cpu.max", f"{quota} {_PERIOD_US}")
        limits.append(_Limit("cpu", ("cpu.cfs_quota_us", str(quota)), new))
    if environment.memory_mib is not None:
        size = str(environment.memory_mib << 20)
        limits.append(_Limit("memory", ("memory.limit_in_bytes", size), ("memory.max", size)))
    for way, number in (
        ("write", environment.writes_per_second),
        ("read", environment.reads_per_second),
    ):
        if number is not None:
            disk = _disk(scratch)
            old = (f"blkio.throttle.{way}_iops_device", f"{disk} {number}")
            limits.append(_Limit("blkio", old, ("io.max", f"{disk} {way[0]}iops={number}")))
    return tuple(limits)


def _disk(path: Path) -> str:
    """Numbers of the whole disk that a file is on."""
    device = path.stat().st_dev
    block = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    disk = block.parent if (block / "partition").exists() else block
    return (disk / "dev").read_text().strip()


@contextmanager
def _groups(limits: tuple[_Limit, ...], scratch: Path) -> Iterator[tuple[Path, ...]]:
    """Control groups with these limits. They and `scratch` are removed in the end."""
    name = scratch.name
    folders = tuple(dict.fromkeys(limit.folder(name) for limit in limits))
    cleaner = subprocess.Popen(
        ("/bin/sh", "-c", _CLEAN, "sh", str(scratch), *map(str, folders)),
        stdin=subprocess.PIPE,
        start_new_session=True,  # signals for us are not for it
    )
    try:
        for folder in folders:
            folder.mkdir()
        for limit in limits:
            limit.set(name)
        yield folders
    finally:
        cleaner.communicate()
        if cleaner.returncode != 0:
            raise OSError(f"A control group was not removed: {', '.join(map(str, folders))}")


@contextmanager
def _neighbour() -> Iterator[None]:
    with subprocess.Popen((sys.executable, "-c", _NEIGHBOUR), stdin=subprocess.PIPE) as process:
        try:
            yield
        finally:
            process.communicate()
