"""Describes the places of probes in a target to the program of waits."""

from __future__ import annotations

from ebpfprof.goruntime.plugins import ProbedCode
from ebpfprof.goruntime.process import GoTarget
from ebpfprof.kernel.program import BpfProgram
from ebpfprof.kernel.uprobe_helper import Uprobe
from ebpfprof.profilers.target_layout import source_fields
from ebpfprof.profilers.waits import runtime_locks
from ebpfprof.profilers.waits.rows import WaitsConfig
from symbolizer.codeanalysis.tracked_waits import TrackedSite, TrackedWaitSites

SITES_PER_TARGET = 128  # of a program and its plugins


class SiteTable:
    """The rows of the map `sites`: an attach cookie is the number of a row."""

    def __init__(self, program: BpfProgram, config: WaitsConfig) -> None:
        """`program` need not be loaded yet."""
        self._program = program
        self._config = config
        self._sites: dict[tuple[int, str, int], int] = {}
        self._free: list[int] = []

    def probes(self, index: int, go: GoTarget, code: ProbedCode) -> list[Uprobe]:
        """Fill the rows for a file of the target with the number `index`; return its probes."""
        semaphores = code.sites.semaphores
        probes = []
        if self._config.block:
            probes.append(self._probe(index, code, "on_wake", code.sites.wake_pc))
        elif semaphores:
            probes += [
                self._probe(index, code, "on_release", release.call_pc, return_pc=release.return_pc)
                for release in semaphores.releases
            ]
        if semaphores:
            probes.append(self._probe(index, code, "on_settled", semaphores.settled_pc))
        for park in code.sites.parks:
            if self._config.block or park.is_semaphore:
                probes.append(
                    self._probe(
                        index,
                        code,
                        "on_wait",
                        park.start_pc,
                        return_pc=park.return_pc,
                        is_semaphore=park.is_semaphore,
                    )
                )
        return probes + self._runtime_lock_probes(index, go, code)

    def tracked_probes(
        self, index: int, go: GoTarget, code: ProbedCode, places: TrackedWaitSites
    ) -> list[Uprobe]:
        """The same for the probes of one wait in eight, whose `places` in that file are given."""
        functions = {
            "on_tracked_begin": places.begins,
            "on_tracked_end": places.ends if self._config.has_waiters else (),
            "on_tracked_lock": places.locks if self._config.mutex else (),
        }
        probes = [
            self._tracked_probe(index, code, function, site)
            for function, sites in functions.items()
            for site in sites
        ]
        if self._config.mutex and code.sites.semaphores:
            probes += [
                self._probe(
                    *(index, code, "on_tracked_release", release.call_pc),
                    return_pc=release.return_pc,
                )
                for release in code.sites.semaphores.releases
            ]
        return probes + self._runtime_lock_probes(index, go, code)

    def run_probes(
        self, index: int, code: ProbedCode, places: TrackedWaitSites, *, has_ends: bool = False
    ) -> list[Uprobe]:
        """The same for those where tracked goroutines begin to run; of ends, too, on demand."""
        if not self._config.has_waiters:
            return []
        functions = [("on_tracked_run", site) for site in places.runs]
        functions += [("on_tracked_end", site) for site in places.ends] if has_ends else []
        return [self._tracked_probe(index, code, *function) for function in functions]

    def _tracked_probe(
        self, index: int, code: ProbedCode, function: str, site: TrackedSite
    ) -> Uprobe:
        probe = self._probe(index, code, function, site.pc)
        fields = source_fields(site.goroutine)
        self._program.maps["goroutines"].set_struct(probe.cookie, fields)
        return probe

    def _runtime_lock_probes(self, index: int, go: GoTarget, code: ProbedCode) -> list[Uprobe]:
        if not go.runtime_locks or code.elf is not go.binary.elf:
            return []
        return [
            self._probe(index, code, probe.function, probe.pc, return_pc=probe.return_pc)
            for probe in runtime_locks.probes(go)
        ]

    def forget(self, index: int) -> None:
        """Free the rows of a target without attached probes."""
        for site in [site for site in self._sites if site[0] == index]:
            self._free.append(self._sites.pop(site))

    def _probe(
        self,
        index: int,
        code: ProbedCode,
        function: str,
        pc: int,
        *,
        return_pc: int = 0,
        is_semaphore: bool = False,
    ) -> Uprobe:
        """Fill the row for a place; return the probe for it."""
        address = pc + code.load_bias
        site = self._sites.get((index, function, address))
        if site is None:
            site = self._free.pop() if self._free else len(self._sites)
            self._sites[index, function, address] = site
        fields = {
            "return_pc": return_pc + code.load_bias if return_pc else 0,
            "target": index,
            "is_semaphore": int(is_semaphore),
            "deeper_bytes": 0,  # the kernel learns it
        }
        self._program.maps["sites"].set_struct(site, fields)
        return Uprobe(function, code.file_offset(pc), address, cookie=site)
