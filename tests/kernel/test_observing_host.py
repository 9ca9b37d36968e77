"""What the kernel counts for real processes in real control groups."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Final

from ebpfprof.findings.host import HostChange, HostMoment
from ebpfprof.observing.host import HostReader
from ebpfprof.process.process import Target
from tests.faults.environment import Environment, running
from tests.kernel import programs

_CPUS: Final = 0.5
_MEMORY_MIB: Final = 256
_S: Final = 1_000_000_000
_TICK_NS: Final = _S // os.sysconf("SC_CLK_TCK")
# It sleeps so often, computes, and says what the kernel counted for it.
_PROGRAM: Final = """
import resource, sys, threading, time
def work():
    for _ in range(300):
        time.sleep(0.0001)  # each sleep is one voluntary switch, which the test counts
thread = threading.Thread(target=work)
bytes(1 << 26)
thread.start()
thread.join()
thread = threading.Thread(target=sys.stdin.read)
thread.start()
use = resource.getrusage(resource.RUSAGE_SELF)
print(use.ru_nvcsw, use.ru_majflt, flush=True)
thread.join()
"""
_READER: Final = """
import sys
from ebpfprof.observing.host import HostReader
from ebpfprof.process.process import Target
with Target(int(sys.argv[1])) as target:
    print(*[group.limit_bytes for group in HostReader(target).read().memory_groups])
"""


def moment(pid: int) -> HostMoment:
    with Target(pid) as target:
        return HostReader(target).read()


def test_a_program_in_a_group_with_limits() -> None:
    environment = Environment(cpus=_CPUS, memory_mib=_MEMORY_MIB)
    program = programs.program("faults")
    with (
        running(program, "throttled", environment=environment) as target,
        Target(target.pid) as opened,
    ):
        reader = HostReader(opened)
        before = reader.read()
        throttling = None
        while throttling is None or throttling.throttled == 0:
            now = reader.read()
            change = HostChange(before, now, _S)
            throttling = change.throttling
    assert throttling.group.quota_cpus == now.quota_cpus == _CPUS
    assert throttling.throttled <= throttling.periods
    assert throttling.stopped_ns > 0
    assert now.processors == _CPUS
    assert now.cpu_groups[-1].name == "/"
    memory = now.memory_groups[0]
    assert memory.limit_bytes == _MEMORY_MIB << 20
    assert memory.used_bytes is not None
    assert now.resident_bytes is not None
    assert memory.needed_bytes is not None
    assert 0 < memory.needed_bytes <= memory.used_bytes
    assert memory.kills == 0
    assert change.delayed_ns is not None
    assert change.delayed_ns > 0  # while it was throttled, at least


def test_counters_are_those_of_all_threads() -> None:
    command = (sys.executable, "-c", _PROGRAM)
    began_ns = time.monotonic_ns()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        switches, major = map(int, process.stdout.readline().split())
        while len(os.listdir(f"/proc/{process.pid}/task")) > 2:
            pass  # the kernel has yet to end the thread that slept
        now = moment(process.pid)
        process.communicate()
    assert now.threads is not None
    assert len(now.threads) == 2
    # The thread that slept has ended: its switches are not those of a thread that is there.
    assert 0 < sum(one.voluntary_switches for one in now.threads.values()) < switches
    assert now.major_faults is not None
    assert now.major_faults >= major
    assert now.age_ns is not None
    assert 0 < now.age_ns <= time.monotonic_ns() - began_ns + _TICK_NS
    assert now.affinity == len(os.sched_getaffinity(0))
    assert now.machine
    assert now.machine.busy_ns > now.cpu_ns
    assert now.quota_cpus is None


def test_groups_are_found_from_another_cgroup_namespace() -> None:
    """Paths then begin with one "/.." for each group around our own."""
    limited = Environment(memory_mib=_MEMORY_MIB)
    with running(programs.program("faults"), "idleserver", environment=limited) as target:
        command = ("unshare", "--cgroup", sys.executable, "-c", _READER, str(target.pid))
        read = subprocess.run(command, capture_output=True, text=True, check=True)
    assert read.stdout.split()[0] == str(_MEMORY_MIB << 20)
