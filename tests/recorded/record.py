"""Makes the recorded inputs, and the outputs that are right for them.

    python -m tests.recorded.record             records all again, as root: inputs and outputs
    python -m tests.recorded.record NAME...     records these again
    python -m tests.recorded.record --golden    makes the outputs again from the recorded inputs
    python -m tests.recorded.record --programs  saves the programs again, if other parts are needed

What is made belongs to the code of that moment: use it only when a difference is wanted.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, astuple
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.kernel.program import BpfProgram
from ebpfprof.kernel.program_source import ProgramSource
from ebpfprof.kernel.ring_buffer import RingReader
from ebpfprof.profile.model import Label
from ebpfprof.profilers.cpu import cpu_program
from ebpfprof.profilers.cpu.cpu_recording import CpuSums
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.report_builder import RecordingFacts, Report, WholeSums
from ebpfprof.profilers.waits import budgeted_waits, estimates
from ebpfprof.profilers.waits import collector as waits_collector
from ebpfprof.profilers.waits.long_waits import SampledStack, StackKey
from ebpfprof.profilers.waits.open_waits import ParkedAtEnd
from ebpfprof.profilers.waits.rows import KnownStack, StackSums
from ebpfprof.profilers.waits.sampled_sums import SampledSums
from ebpfprof.profilers.waits.wait_profiles import ReadWaits
from ebpfprof.profilers.waits.wait_tables import WaitTables
from ebpfprof.recording import session as session_module
from ebpfprof.recording.reports import ProcessSums, reported
from ebpfprof.recording.session import Session
from tests.images.record import photographed, reduced
from tests.images.target import Shown
from tests.recorded import commands, outputs, pipeline
from tests.recorded.program import DATA, PROGRAMS, Program
from tests.recorded.recordings import RECORDINGS, SUMS, Recording
from tests.recorded.saved import END, Maps, Rows, Saved
from tests.targets_run import Target

_HASHES: Final = {
    "waits.bpf.c": (
        *("waits", "stacks", "totals", "lengths", "spreads", "locks", "pairs"),
        *("label_sets", "absent_labels"),
    ),
    "cpu.bpf.c": ("samples", "label_sets", "absent_labels", "lines"),
}
_PER_CPU: Final = {"waits.bpf.c": ("costs",), "cpu.bpf.c": ("costs", "filled", "sets_made")}
_ATTEMPTS: Final = 10
_estimates: Final = estimates.estimates


class _Kept:
    """What is kept of one recording while it is made."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.programs: dict[str, _KeptProgram] = {}
        self.readings: list[list[Any]] = []  # of sums that may be sampled: see _KeptTables
        self.runs_at_first = self.runs_in_eighth = 0.0
        self.samples_of_waits: Mapping[StackKey, SampledStack] = {}
        self.middle_ns = 0
        self.recording: RecordingFacts | None = None
        self.waits: ReadWaits | None = None
        self.samples: CpuSums | None = None
        self.hints: list[str] = []  # with {pid} in place of the number

    def estimates(
        self,
        sums: SampledSums,
        waits: Mapping[StackKey, SampledStack],
        *args: Any,  # noqa: ANN401 - passed on
        **more: Any,  # noqa: ANN401 - passed on
    ) -> estimates.WaitEstimates:
        """Stands for ebpfprof.profilers.waits.estimates.estimates."""
        self.runs_at_first, self.runs_in_eighth = sums.runs_at_first, sums.runs_in_eighth
        self.samples_of_waits = waits
        return _estimates(sums, waits, *args, **more)

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
        if waits and waits.coverage:
            facts |= {
                "readings": self.readings,
                "runs_at_first": self.runs_at_first,
                "runs_in_eighth": self.runs_in_eighth,
                "coverage": astuple(waits.coverage)[:5],
                "samples_of_waits": _samples(self.samples_of_waits),
                "holds": {sema: astuple(hold) for sema, hold in waits.holds.items()},
                "standing": waits.standing and astuple(waits.standing),
            }
        return facts


class _KeptProgram(BpfProgram):
    """Keeps what its maps hold, at the end and on request."""

    def __init__(self, of: _Kept, source: ProgramSource, *args: Any, **more: Any) -> None:  # noqa: ANN401 - passed on to BpfProgram
        super().__init__(source, *args, **more)
        self._of = of
        self._name = name = source.name.rpartition("/")[2]
        self._is_kept = False
        self.kept = Maps(self.hit_ns)
        of.programs[name.removesuffix(".bpf.c")] = self

    def load(self, *args: Any, **more: Any) -> None:  # noqa: ANN401 - passed on
        super().load(*args, **more)
        if "unlearned" in self.maps:
            self._keep_records(self.maps["unlearned"].reader())
        self.keep(pipeline.BEGIN)

    def keep(self, moment: str, names: Iterable[str] = ()) -> None:
        """Keep what these hash maps hold now, or all."""
        wanted = names or [name for name in _HASHES[self._name] if name in self.maps]
        self.kept.hashes[moment] = {name: self.maps[name].rows() for name in wanted}

    @contextmanager
    def keeping_what_is_read(self, moment: str) -> Iterator[None]:
        """Keep what is read of these maps meanwhile; each is read once."""
        kept = self.kept.hashes[moment] = {}

        def listened(name: str, rows: Callable[[], Rows]) -> Callable[[], Rows]:
            def read() -> Rows:
                kept[name] = rows()
                return kept[name]

            return read

        with ExitStack() as held:
            for name in SUMS & self.maps.keys():
                rows = listened(name, self.maps[name].rows)
                held.enter_context(mock.patch.object(self.maps[name], "rows", rows))
            yield

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


class _KeptSums(SampledSums):
    """Keeps in what order sums were added, and how often goroutines ran."""

    def __init__(self, of: _Kept) -> None:
        super().__init__()
        self._of = of

    def add_every(self, more: Mapping[KnownStack, StackSums]) -> None:
        self._of.readings.append(["every"])
        super().add_every(more)

    def add_eighth(self, more: Mapping[KnownStack, StackSums]) -> None:
        self._of.readings.append(["eighth"])
        super().add_eighth(more)

    def add_window(
        self, more: Mapping[KnownStack, StackSums], length_ns: float, runs: float
    ) -> None:
        self._of.readings.append(["window", length_ns, runs])
        super().add_window(more, length_ns, runs)

    def add_pause(self, runs: float) -> None:
        self._of.readings.append(["pause", runs])
        super().add_pause(runs)


class _KeptTables(WaitTables):
    """Keeps what is read of the sums."""

    def __init__(self, of: _Kept, *args: Any) -> None:  # noqa: ANN401 - passed on
        super().__init__(*args)
        self._of = of

    def take(self, index: int) -> dict[KnownStack, StackSums]:
        with self._kept("take"):
            return super().take(index)

    def uncharged(self, index: int, end_ns: int) -> dict[int, float]:
        with self._kept("uncharged", end_ns):
            return super().uncharged(index, end_ns)

    def _kept(self, what: str, *details: int) -> AbstractContextManager[None]:
        moment = f"reading {len(self._of.readings)}"
        self._of.readings.append([what, moment, *details])
        return self._of.programs["waits"].keeping_what_is_read(moment)


def _record(program: Path, recording: Recording) -> tuple[Saved, Report]:
    """Run the program under a recording; what is to be kept, and what came out of it."""
    kept = _Kept(dict(recording.options))
    options = Options(**{**kept.options, "kinds": tuple(kept.options["kinds"])})
    is_done = threading.Event()

    def ask(process: Target) -> None:
        try:
            for line in recording.first:
                _ask(process, line)
            for name, hashes in recording.at_the_middle.items():
                kept.programs[name].keep(pipeline.MIDDLE, hashes)
            kept.middle_ns = kernel_now_ns()
            for line in recording.then:
                _ask(process, line)
        finally:
            is_done.set()

    with ExitStack() as held:
        for patch in (
            mock.patch.object(waits_collector, "MAX_STACKS", recording.max_stacks),
            mock.patch.object(waits_collector, "BpfProgram", partial(_KeptProgram, kept)),
            mock.patch.object(cpu_program, "BpfProgram", partial(_KeptProgram, kept)),
            mock.patch.object(waits_collector, "WaitTables", partial(_KeptTables, kept)),
            mock.patch.object(budgeted_waits, "SampledSums", partial(_KeptSums, kept)),
            mock.patch.object(estimates, "estimates", kept.estimates),
            mock.patch.object(session_module, "reported", kept.report),
        ):
            held.enter_context(patch)
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


def _samples(found: Mapping[StackKey, SampledStack]) -> list[Any]:
    return [
        [sema, return_pcs, _labels(labels), astuple(each)]
        for (sema, return_pcs, labels), each in found.items()
    ]


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


def main(arguments: list[str]) -> int:
    """Command line. Returns the exit status."""
    names = list(arguments or RECORDINGS)
    if arguments in (["--golden"], ["--programs"]):
        names = []
    elif not set(names) <= RECORDINGS.keys():
        print(__doc__, file=sys.stderr)
        return 2
    if arguments != ["--golden"]:
        with tempfile.TemporaryDirectory() as scratch:
            built = {}
            for program in PROGRAMS:
                folder = Path(scratch).resolve() / program.name
                folder.mkdir()
                built[program] = program.build(folder)
            recorded = {
                name: _recorded(built[RECORDINGS[name].program], name, Path(scratch))
                for name in names
            }
            if not arguments:
                shutil.rmtree(DATA, ignore_errors=True)
                DATA.mkdir()
                for program, path in built.items():
                    program.keep_digest(path)
            for name, saved in recorded.items():
                saved.save(name)
            for program, path in built.items():
                program.require_recorded(path)
                _photograph(program, path)
    _make_golden()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
