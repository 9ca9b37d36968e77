"""The benchmark's floor: empty programs at the places of the block profile."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from ebpfprof.kernel.program import BpfProgram
from ebpfprof.process.process import Target as Process
from ebpfprof.profilers.waits.probe_sites import SiteTable
from ebpfprof.profilers.waits.rows import WaitsConfig
from tests.bench import floor
from tests.bench.workloads import program
from tests.go_target import inspect
from tests.kernel.kernel_state import probed
from tests.targets_run import Target


@dataclass
class NoMap:
    """A map of sites that forgets what is written."""

    def set_struct(self, index: int, fields: dict[str, int]) -> None:
        """Forget it."""


@dataclass
class NoProgram:
    """A program that is not loaded."""

    maps: dict[str, NoMap] = field(default_factory=lambda: {"sites": NoMap()})


def test_the_floor_probes_what_the_block_profile_probes() -> None:
    with Target.start(program()) as target, Process(target.pid) as process:
        go = inspect(process)
        sites = SiteTable(cast("BpfProgram", NoProgram()), WaitsConfig(block=True, mutex=False))
        ours = {probe.offset for probe in sites.probes(0, go, go.probed[0])}
        assert {go.file_offset(pc) for pc in floor.places(go)} == ours
        with floor.attached(target.pid):
            assert len(probed(target.pid)) == len(ours)
        assert not probed(target.pid)
        target.ask("go pingpong 100", "ns ")
