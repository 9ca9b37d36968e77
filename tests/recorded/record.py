"""Makes the recorded inputs, and the outputs that are right for them.

    python -m tests.recorded.record             records all again, as root: inputs and outputs
    python -m tests.recorded.record --golden    makes the outputs again from the recorded inputs
    python -m tests.recorded.record --programs  saves the programs again, if other parts are needed

What is made belongs to the code of that moment: use it only when a difference is wanted.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from dataclasses import asdict, astuple
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

from ebpfprof.goruntime.goroutines.parked import Wait
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.kernel.program import BpfProgram
from ebpfprof.kernel.ring_buffer import RingReader
from ebpfprof.profile.model import Label
from ebpfprof.profilers.cpu import cpu_program
from ebpfprof.profilers.cpu.cpu_recording import CpuSums
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.report_builder import RecordingFacts, Report, WholeSums
from ebpfprof.profilers.waits import collector as waits_collector
from ebpfprof.profilers.waits import window_sums, windows
from ebpfprof.profilers.waits.looked_delays import LookedDelays
from ebpfprof.profilers.waits.open_recorder import OpenWaitsRecorder
from ebpfprof.profilers.waits.open_waits import ParkedAtEnd
from ebpfprof.profilers.waits.rows import KnownStack, QueueRow
from ebpfprof.profilers.waits.wait_profiles import ReadWaits
from ebpfprof.recording import session as session_module
from ebpfprof.recording.reports import ProcessSums, reported
from ebpfprof.recording.session import Session
from tests.images.record import photographed, reduced
from tests.images.target import Shown
from tests.recorded import commands, outputs, pipeline
from tests.recorded.program import DATA, PROGRAMS, Program
from tests.recorded.recordings import CHANGING, RECORDINGS, Recording
from tests.recorded.saved import END, Maps, Rows, Saved
from tests.targets_run import Target

_HASHES: Final = {
    "waits.bpf.c": ("waits", "stacks", "totals", "locks", "pairs", "label_sets", "absent_labels"),
    "cpu.bpf.c": ("samples", "label_sets", "absent_labels", "lines"),
}
_PER_CPU: Final = {"waits.bpf.c": ("costs",), "cpu.bpf.c": ("costs", "filled", "sets_made")}
_ATTEMPTS: Final = 10


class _Kept:
    """What is kept of one recording while it is made."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.programs: dict[str, _KeptProgram] = {}
        self.windows: list[list[Any]] = []
        self.stacks: dict[KnownStack, int] = {}  # with their numbers in the file
        self.middle_ns = 0
        self.recording: RecordingFacts | None = None
        self.waits: ReadWaits | None = None
        self.samples: CpuSums | None = None
        self.hints: list[str] = []  # with {pid} in place of the number

    def report(self, sums: ProcessSums, since: ProcessSums | None, options: Options) -> Report:
        """Stands for ebpfprof.recording.reports.reported."""
        self.recording = sums.facts
        for each in sums.parts.values():
            if isinstance(each, WholeSums) and isinstance(each.read, ReadWaits):
                self.waits = each.read
            elif isinstance(each, CpuSums):
                self.samples = each
        report = reported(sums, since, options)
        self.hints = [each.replace(str(report.target.pid), "{pid}") for each in report.hints]
        return report

    def facts(self) -> dict[str, Any]:
        """All but what the maps held."""
        recording, waits = self.recording, self.waits
        assert recording is not None
        assert recording.overhead is not None
        facts = {
            "options": self.options,
            "started_ns": recording.started_ns,
            "started_unix_ns": recording.started_unix_ns,
            "middle_ns": self.middle_ns,
            "ended_ns": recording.ended_ns,
            "cpu_ns": recording.overhead.cpu_ns,
            "own_cost": recording.own_cost,
            "sampler": self.samples.sampler if self.samples else "",
            "parked": waits and waits.parked and _parked(waits.parked),
            "hints": self.hints,
        }
        if self.windows and waits:
            begun = {g: list(astuple(b)) for g, b in waits.last_waits.items()}
            stacks = [[*each[:4], _labels(each.labels)] for each in self.stacks]
            facts |= {"begun": begun, "windows": self.windows, "stacks": stacks}
        return facts


class _KeptProgram(BpfProgram):
    """Keeps what its maps hold, at the end and on request."""

    def __init__(self, of: _Kept, name: str, *args: Any, **more: Any) -> None:  # noqa: ANN401
        super().__init__(name, *args, **more)
        self._of = of
        self._name = name = name.rpartition("/")[2]
        self._is_kept = self._is_keeping = False
        self.kept = Maps(self.hit_ns)
        of.programs[name.removesuffix(".bpf.c")] = self

    def load(self, *args: Any, **more: Any) -> None:  # noqa: ANN401
        super().load(*args, **more)
        if "totals" in self.maps:
            self._rows_of_totals, self.maps["totals"].rows = self.maps["totals"].rows, self._totals  # type: ignore[method-assign]  # to listen
        if "unlearned" in self.maps:
            self._keep_records(self.maps["unlearned"].reader())
        self.keep(pipeline.BEGIN)

    def keep(self, moment: str, names: Iterable[str] = ()) -> None:
        """Keep what these hash maps hold now, or all."""
        self._is_keeping = True
        wanted = names or [name for name in _HASHES[self._name] if name in self.maps]
        hashes = {name: self.maps[name].rows() for name in wanted}
        self.kept.hashes[moment] = hashes
        self._is_keeping = False

    def _totals(self) -> Rows:
        if not self._is_keeping and "max_overhead" in self._of.options:
            moment = f"window {len(self._of.windows)}"
            self.keep(moment, CHANGING)
            self._of.windows.append(["take", moment])
        return self._rows_of_totals()

    def _keep_records(self, reader: RingReader) -> None:
        consume = reader.consume

        def kept(max_records: int = 4096) -> list[bytes]:
            records = consume(max_records)
            self.kept.records.extend(records)
            return records

        reader.consume = kept  # type: ignore[method-assign]  # to listen

    def close(self) -> None:
        if not self._is_kept:
            self._is_kept = True
            self.keep(END)
            self.kept.arrays["losses"] = self.maps["losses"].numbers().tolist()
            for name in _PER_CPU[self._name]:
                self.kept.per_cpu[name] = self.maps[name].sum_at(0)
        super().close()


class _KeptSums(window_sums.WindowSums):
    """Keeps the windows that it is given, without what the maps have anyway."""

    def __init__(self, of: _Kept) -> None:
        super().__init__()
        self._of = of
        self._is_adding = False

    def begin(self, now_ns: int) -> None:
        self._of.windows.append(["begin", now_ns])
        super().begin(now_ns)

    def add(
        self,
        found: Mapping[KnownStack, tuple[float, float]],
        begin_ns: int,
        end_ns: int,
        ongoing: Sequence[window_sums.OngoingWait] = (),
        queues: Sequence[QueueRow] = (),
        planned_ns: int = 0,
        slowdown: float = 1.0,
    ) -> None:
        stacks = self._of.stacks
        listed = [
            [each.wait, stacks.setdefault(each.stack, len(stacks)), each.ns] for each in ongoing
        ]
        self._of.windows.append(["add", begin_ns, end_ns, planned_ns, slowdown, listed])
        self._is_adding = True
        super().add(found, begin_ns, end_ns, ongoing, queues, planned_ns, slowdown)
        self._is_adding = False

    def stretch(self, until_ns: int, slowdown: float = 1.0) -> None:
        if not self._is_adding:
            self._of.windows.append(["stretch", until_ns, slowdown])
        super().stretch(until_ns, slowdown)

    def settle(self, waiting: AbstractSet[Wait]) -> None:
        self._of.windows.append(["settle", sorted(waiting)])
        super().settle(waiting)


_noted_end = OpenWaitsRecorder.note_end


def _note_end(recorder: OpenWaitsRecorder, _looks: object) -> None:
    _noted_end(recorder, None)


def _record(program: Path, recording: Recording) -> tuple[Saved, Report]:
    """Run the program under a recording; what is to be kept, and what came out of it."""
    kept = _Kept(dict(recording.options))
    options = Options(**{**kept.options, "kinds": tuple(kept.options["kinds"])})
    is_done = threading.Event()

    def ask(process: Target) -> None:
        try:
            for line in recording.first:
                _ask(process, line)
            for of, hashes in recording.at_the_middle.items():
                kept.programs[of].keep(pipeline.MIDDLE, hashes)
            kept.middle_ns = kernel_now_ns()
            for line in recording.then:
                _ask(process, line)
        finally:
            is_done.set()

    with ExitStack() as held:
        for module in (waits_collector, cpu_program):
            held.enter_context(mock.patch.object(module, "BpfProgram", partial(_KeptProgram, kept)))
        for limit, rows in recording.room.items():
            held.enter_context(mock.patch.object(waits_collector, limit, rows))
        held.enter_context(mock.patch.object(windows, "WindowSums", partial(_KeptSums, kept)))
        held.enter_context(mock.patch.object(session_module, "reported", kept.report))
        # What windows tell without goroutine samples, which are not kept.
        held.enter_context(mock.patch.object(LookedDelays, "has_begun", new=False))
        held.enter_context(mock.patch.object(LookedDelays, "grown", lambda _, totals: totals))
        held.enter_context(mock.patch.object(OpenWaitsRecorder, "note_end", _note_end))
        process = held.enter_context(Target.start(program))
        for line in recording.before:
            _ask(process, line)
        session = held.enter_context(Session([process.pid], options))
        session.start()
        asker = threading.Thread(target=ask, args=(process,))
        asker.start()
        session.wait(600, lambda _: is_done.is_set())
        asker.join()
        (found,) = session.finish()
        failures = session.failures()
        if failures:
            raise ExceptionGroup("it was not recorded as it should be", failures)
    maps = {each: program.kept for each, program in kept.programs.items()}
    return Saved(maps, kept.facts()), found


def _ask(process: Target, line: str) -> None:
    process.ask(line, f"did {line.split()[0]}")


def _recorded(program: Path, name: str, folder: Path) -> Saved:
    """A recording that can be replayed: what comes out of it is what came out in the first place.

    That is not so if a sample was taken in the vDSO, which lies elsewhere in each process.
    """
    recording = RECORDINGS[name]
    for _ in range(_ATTEMPTS):
        saved, report = _record(program, recording)
        locations = (
            location
            for profile in report.profiles
            for sample in profile.samples
            for location in sample.locations
        )
        path = str(program)
        # What has no mapping is no address: a mark that a stack was cut off.
        if any(each.mapping and each.mapping.filename != path for each in locations):
            print(f"{name}: a stack leads out of the program; again")
            continue
        if report.coverage and report.coverage.windows < recording.least_windows:
            print(f"{name}: only {report.coverage.windows} windows; again")
            continue
        wanted = pipeline.outputs_of(report, path)
        saved.save(name, folder)
        shown = photographed(program, path, recording.program.version).shown()
        found = pipeline.replayed(shown, Saved.load(name, folder))
        differences = [outputs.difference(each, wanted[each], found[each]) for each in wanted]
        if any(differences):
            raise AssertionError("\n\n".join(filter(None, differences)))
        return saved
    raise AssertionError(f"{name}: in none of {_ATTEMPTS} attempts")


def _parked(parked: ParkedAtEnd) -> dict[str, Any]:
    goroutines = [
        {**asdict(each), "labels": None if each.labels is None else _labels(each.labels)}
        for each in parked.goroutines
    ]
    losses = [[loss.name, loss.text, loss.count] for loss in parked.losses]
    return {"read_ns": parked.read_ns, "losses": losses, "goroutines": goroutines}


def _labels(labels: Iterable[Label]) -> list[list[str]]:
    return [[each.key, str(each.value)] for each in labels]


def _photograph(program: Program, built: Path) -> None:
    """Save images of the program, with what the outputs need of its file."""
    name = f"/usr/local/bin/{program.source}"
    wholes = {
        state: photographed(built, name, program.version, lines)
        for state, lines in program.states.items()
    }

    def read(shown: Sequence[Shown]) -> dict[str, bytes]:
        with program.with_states(dict(zip(wholes, shown, strict=True))):
            return {**outputs.outputs_with(program), **commands.outputs_with(program)}

    program.save(dict(zip(wholes, reduced(list(wholes.values()), read), strict=True)))


def _make_golden() -> None:
    made = {**outputs.all_outputs(), **commands.all_outputs()}
    shutil.rmtree(outputs.GOLDEN, ignore_errors=True)
    outputs.GOLDEN.mkdir()
    for name, output in made.items():
        (outputs.GOLDEN / name).write_bytes(output)


def main(arguments: Sequence[str]) -> int:
    """Command line. Returns the exit status."""
    if arguments and (len(arguments) > 1 or arguments[0] not in ("--golden", "--programs")):
        print(__doc__, file=sys.stderr)
        return 2
    if list(arguments) != ["--golden"]:
        with tempfile.TemporaryDirectory() as scratch:
            built = {}
            for program in PROGRAMS:
                folder = Path(scratch).resolve() / program.name
                folder.mkdir()
                built[program] = program.build(folder)
            if not arguments:
                recorded = {
                    name: _recorded(built[each.program], name, Path(scratch))
                    for name, each in RECORDINGS.items()
                }
                shutil.rmtree(DATA, ignore_errors=True)
                DATA.mkdir()
                for name, saved in recorded.items():
                    saved.save(name)
                for program, path in built.items():
                    program.keep_digest(path)
            for program, path in built.items():
                program.require_recorded(path)
                _photograph(program, path)
    _make_golden()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
