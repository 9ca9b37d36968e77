"""From recorded inputs to the bytes of all outputs, through the real code but for the kernel.

All that the replay takes of ebpfprof is imported here: when modules move, only this file follows.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final
from unittest import mock

from ebpfprof.export import formats, pprof
from ebpfprof.export.tables import locks
from ebpfprof.goruntime.goroutines.parked import ParkedGoroutine
from ebpfprof.goruntime.process import GoTarget, go_target, open_program
from ebpfprof.overhead.cost import Overhead, Runs
from ebpfprof.overhead.process_budget import ProcessBudget
from ebpfprof.process.mappings import MappedObjects
from ebpfprof.process.process import Target
from ebpfprof.profile.delta import difference
from ebpfprof.profile.losses import Loss
from ebpfprof.profile.model import Label, Location, Profile, Sample
from ebpfprof.profile.model import Mapping as MappedRange
from ebpfprof.profile.wait_histogram import WaitHistogram
from ebpfprof.profilers.cpu import cpu_profile, cpu_program
from ebpfprof.profilers.cpu.cpu_names import CpuTranslator
from ebpfprof.profilers.cpu.cpu_recording import CpuProfiler
from ebpfprof.profilers.cpu.sample_table import CpuStack, SampleSums
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.recording import OpenedProcess
from ebpfprof.profilers.report_builder import RecordingFacts, Report, ReportBuilder
from ebpfprof.profilers.waits import collector as waits
from ebpfprof.profilers.waits import estimates, wait_profiles
from ebpfprof.profilers.waits.coverage import WaitsCoverage
from ebpfprof.profilers.waits.long_waits import SampledStack
from ebpfprof.profilers.waits.open_waits import ParkedAtEnd, StandingGoroutines
from ebpfprof.profilers.waits.rows import (
    Hold,
    KnownStack,
    LastWait,
    StackSums,
    StackTotal,
    WaitsConfig,
)
from ebpfprof.profilers.waits.sampled_sums import SampledSums
from ebpfprof.profilers.waits.wait_stacks import StackTranslator
from tests.images.target import NO_PID, SavedTarget, Shown
from tests.recorded.saved import END, Saved, SavedProgram

MIDDLE: Final = "middle"
_SUMS_OF_SAMPLES: Final = 6  # those of SampledStack before its lengths
BEGIN: Final = "begin"
_ENCODED: Final = {"pprof": "pb", "json": "json", "folded": "folded", "text": "txt"}
_PROCESS: Final = re.compile(r"process \d+ \([^,)]+")
_VERSION: Final = re.compile(r"^ebpfprof \S+:")


def replayed(shown: Shown, saved: Saved) -> dict[str, bytes]:
    """All outputs of a recording, by name; `shown` is the recorded program, which does nothing."""
    with opened(shown, saved) as replay:
        return replay.outputs()


def decoded(encoded: bytes) -> Profile:
    """The profile in an output in pprof's format, for people to read where two differ."""
    return pprof.decode(gzip.compress(encoded))


def outputs_of(found: Report, program: str) -> dict[str, bytes]:
    """The outputs of one report of a process that runs `program`, by name."""
    outputs = {}
    comments = []
    for profile in found.profiles:
        comments += [f"{profile.kind}: {_steady_words(text)}\n" for text in profile.comments]
        steady = _steady(profile, program)
        for name, suffix in _ENCODED.items():
            encoded = formats.encode(steady, name)
            outputs[f"{profile.kind}.{suffix}"] = (
                gzip.decompress(encoded) if name == "pprof" else encoded
            )
        if profile.kind in ("block", "open"):
            outputs[f"{profile.kind}.busy.txt"] = formats.encode(steady, "text", hide_idle=True)
    if found.locks:
        table = locks.render(found.locks, limit=100, width=None, color=False)
        outputs["locks.txt"] = table.encode()
    outputs["comments.txt"] = "".join(comments).encode()
    return outputs


def _steady_words(comment: str) -> str:
    """A comment without what differs from process to process, and from release to release."""
    return _VERSION.sub("ebpfprof VERSION:", _PROCESS.sub("process PID (program", comment))


def _steady(profile: Profile, program: str) -> Profile:
    """The profile without what differs from process to process, and without words of comments.

    Of mappings the program's own stays, with a name without a folder. Comments are numbered
    here and compared apart, so that nothing else differs where only words were changed.
    """
    mappings = {
        each: replace(each, filename="/recorded/program")
        for each in profile.mappings
        if each.filename == program
    }
    assert len(mappings) == 1, profile.mappings
    locations: dict[Location, Location] = {}

    def steady(location: Location) -> Location:
        known = locations.get(location)
        if known is None:
            mapping: MappedRange | None = location.mapping and mappings[location.mapping]
            known = locations[location] = replace(location, mapping=mapping)
        return known

    return replace(
        profile,
        samples=tuple(
            Sample(tuple(map(steady, each.locations)), each.values, each.labels)
            for each in profile.samples
        ),
        mappings=tuple(mappings.values()),
        comments=tuple(f"comment {index + 1}" for index in range(len(profile.comments))),
    )


@contextmanager
def opened(shown: Shown, saved: Saved, pid: int = NO_PID) -> Iterator[Replay]:
    """A recording of the program that is `shown`, as if it had been a process with this pid."""
    with ExitStack() as held:
        target = held.enter_context(SavedTarget(shown, pid))
        inspected = open_program(target)
        held.callback(inspected.close)
        yield Replay(target, go_target(target, inspected), held, saved)


@dataclass(frozen=True)
class Replay:
    """A recording, and the program that was recorded: see opened()."""

    target: Target
    go: GoTarget
    held: ExitStack
    saved: Saved

    @cached_property
    def names(self) -> _Names:
        return _Names(self.go)

    @property
    def options(self) -> Options:
        fields = dict(self.saved.facts["options"])
        return Options(**{**fields, "kinds": tuple(fields["kinds"])})

    def outputs(self) -> dict[str, bytes]:
        """All of them, by name."""
        found: dict[str, bytes] = {}
        recording = self._read(found)
        return found | outputs_of(
            _report(recording, self.options, self.names), self.target.exe_name
        )

    def report(self, options: Options) -> Report:
        """The report with other options than those of the recording."""
        report = _report(self._read({}), options, self.names)
        hints = self.saved.facts.get("hints", [])
        report.hints += [each.replace("{pid}", str(self.target.pid)) for each in hints]
        return report

    def _read(self, found: dict[str, bytes]) -> _Known:
        """The whole recording; adds outputs of its parts to `found`."""
        recording = _Known(self._empty())
        if "waits" in self.saved.maps:
            program = SavedProgram(self.saved.maps["waits"])
            program.show(BEGIN)
            with mock.patch.object(waits, "BpfProgram", return_value=program):
                collector = waits.WaitsCollector(1, WaitsConfig.of(self.options))
            collector.load()
            collector.attach(0, self.go)
            program.show(END)  # once written, stacks and labels stay as they are
            if "readings" in self.saved.facts:
                recording = self._sampled_waits(recording, collector, program)
            elif MIDDLE in self.saved.maps["waits"].hashes:
                program.show(MIDDLE)
                middle = self._exact(recording, collector)
                program.show(END)
                recording = self._exact(recording, collector)
                found |= self._since_middle(middle, recording, self.names)
                found |= self._with_one_label(recording)
            else:
                recording = self._exact(recording, collector)
        if "cpu" in self.saved.maps:
            recording, since_middle = self._sampled(recording)
            if since_middle:
                of_cpu = _report(since_middle, self.options, _Names(self.go))
                found |= _some("since-middle", outputs_of(of_cpu, self.target.exe_name))
        if recording.waits and recording.waits.parked:
            recording = recording.with_losses(recording.waits.parked.losses)
        return recording

    def _since_middle(self, middle: _Known, recording: _Known, names: _Names) -> dict[str, bytes]:
        """The difference of two snapshots of sums, of which the second finds names known."""
        options = self.options.replace(open_waits=False)
        ended = replace(middle.recording, ended_ns=self.saved.facts["middle_ns"])
        middle = replace(middle, recording=ended)
        earlier, later = (_report(each, options, names) for each in (middle, recording))
        parts = zip(later.profiles, earlier.profiles, strict=True)
        since = Report(self.target, [difference(*each) for each in parts])
        found = outputs_of(since, self.target.exe_name)
        return _some("since-middle", found, "block.txt", "mutex.txt", "comments.txt")

    def _with_one_label(self, recording: _Known) -> dict[str, bytes]:
        """What is shown of other labels than those asked for: none, and none of locks."""
        options = self.options.replace(labels=("tenant",), lock_labels=False, by_lock=False)
        found = outputs_of(_report(recording, options, _Names(self.go)), self.target.exe_name)
        return _some("tenant", found)

    def _empty(self) -> RecordingFacts:
        facts = self.saved.facts
        return RecordingFacts(
            target=self.target,
            go=self.go,
            kinds=self.options.kinds,
            started_ns=facts["started_ns"],
            started_unix_ns=facts["started_unix_ns"],
            ended_ns=facts["ended_ns"],
            ending=None,
            traced="",
            overhead=Overhead(Runs(), Runs(), None, facts["cpu_ns"]),
            own_cost=facts["own_cost"],
            losses=[],
        )

    def _exact(self, recording: _Known, collector: waits.WaitsCollector) -> _Known:
        """With the waits of a recording that took each of them."""
        return self._with_waits(
            recording,
            collector,
            collector.tables.snapshot().get(0, []),
            collector.tables.holds().get(0, {}),
            collector.tables.last_waits().get(0, {}),
        )

    def _sampled_waits(
        self, recording: _Known, collector: waits.WaitsCollector, program: SavedProgram
    ) -> _Known:
        """With the waits of a recording in which not each of them was recorded, as estimated."""
        facts, tables = self.saved.facts, collector.tables
        sums, taken = SampledSums(), dict[KnownStack, StackSums]()
        for what, *details in facts["readings"]:
            if what in ("take", "uncharged"):
                program.show(details.pop(0))
            match what:
                case "take":
                    taken = tables.take(0)
                case "every":
                    sums.add_every(taken)
                case "eighth":
                    sums.add_eighth(taken)
                case "window":
                    sums.add_window(taken, *details)
                case "uncharged":
                    sums.add_uncharged(tables.uncharged(0, *details))
                case "pause":
                    sums.add_pause(*details)
        program.show(END)
        sums.runs_at_first = facts["runs_at_first"]
        sums.runs_in_eighth = facts["runs_in_eighth"]
        coverage = WaitsCoverage(*facts["coverage"])
        found = estimates.estimates(
            sums,
            {
                (e[0], tuple(e[1]), _labels(e[2])): _sampled_stack(e[3])
                for e in facts["samples_of_waits"]
            },
            estimates.facts_of_stacks(self.go, self.names.waits),
            hit_ns=collector.hit_ns or 0.0,
        )
        holds = {int(sema): Hold(*hold) for sema, hold in facts["holds"].items()}
        known = self._with_waits(
            recording, collector, found.rows, holds, tables.last_waits().get(0, {})
        )
        assert known.waits
        known.waits.coverage = replace(
            coverage, deviations=found.deviations, uncharged_ns=found.uncharged_ns
        )
        if facts["standing"]:
            since_ns, interval_ns = facts["standing"]
            by_address = {int(address): ns for address, ns in since_ns.items()}
            known.waits.standing = StandingGoroutines(by_address, interval_ns)
        return known

    def _with_waits(
        self,
        recording: _Known,
        collector: waits.WaitsCollector,
        totals: Sequence[StackTotal],
        holds: Mapping[int, Hold],
        last_waits: Mapping[int, LastWait],
    ) -> _Known:
        cost = Overhead(collector.runs(0), Runs(), collector.hit_ns, self.saved.facts["cpu_ns"])
        parked = self.saved.facts["parked"]
        kinds = tuple(kind for kind in self.options.recorded_kinds if kind.name != "cpu")
        names = tuple(sorted(kind.name for kind in kinds))
        losses = [replace(each, kinds=each.kinds or names) for each in collector.losses()]
        found = wait_profiles.ReadWaits(
            kinds=kinds,
            totals=totals,
            holds=holds,
            last_waits=last_waits,
            parked=_parked(parked) if parked else None,
        )
        known = recording.with_losses(losses)
        return replace(known, waits=found, recording=replace(known.recording, overhead=cost))

    def _sampled(self, recording: _Known) -> tuple[_Known, _Known | None]:
        """With the samples of its CPU profile, all of them and those since the middle.

        None if there is no middle.
        """
        program = SavedProgram(self.saved.maps["cpu"])
        program.show(BEGIN)
        with mock.patch.object(cpu_program, "BpfProgram", return_value=program):
            sampling = CpuProfiler(1, cpu_program.CpuConfig.of(self.options))
        opened = OpenedProcess(self.target, self.go, self.held, ProcessBudget(0.0))
        sampled = sampling.record(opened, 0)
        sampling.load()
        samples_of = sampling.program.samples
        begin = samples_of.sums(0)
        with mock.patch.object(cpu_program, "Samplers"):
            sampled.start()
        program.show(END)  # for the labels
        middle = None
        if MIDDLE in self.saved.maps["cpu"].hashes:
            program.show(MIDDLE)
            middle = samples_of.sums(0)
            program.show(END)
        sampled.end(0)
        sampling.detach()
        assert sampling.failures() == []
        end = samples_of.sums(0)
        before = recording.recording.overhead
        assert before is not None
        known = recording.with_losses(sampled.losses())
        overhead = replace(before, samples=sampled.cost().samples)
        known = replace(known, recording=replace(known.recording, overhead=overhead))

        def samples(since: SampleSums) -> _Known:
            found = end - since, self.saved.facts["sampler"]
            return replace(known, samples=found, objects=sampled.objects)

        return samples(begin), samples(middle) if middle else None


@dataclass(frozen=True)
class _Known:
    """A recording, with what profilers have found of it."""

    recording: RecordingFacts
    waits: wait_profiles.ReadWaits | None = None
    samples: tuple[Mapping[CpuStack, int], str] | None = None
    objects: MappedObjects | None = None

    def with_losses(self, losses: Iterable[Loss]) -> _Known:
        known = self.recording
        return replace(self, recording=replace(known, losses=[*known.losses, *losses]))


class _Names:
    """What turns addresses into names, kept between reports."""

    def __init__(self, go: GoTarget) -> None:
        self.go = go
        self.waits = StackTranslator(go)
        self.cpu: CpuTranslator | None = None


def _report(known: _Known, options: Options, names: _Names) -> Report:
    """As profilers do it."""
    builder = ReportBuilder(known.recording, options)
    if known.waits:
        kinds = options.recorded_kinds
        found = replace(known.waits, kinds=tuple(k for k in known.waits.kinds if k in kinds))
        wait_profiles.report(found, names.go, names.waits, builder)
    if known.samples and known.objects and "cpu" in options.kinds:
        names.cpu = names.cpu or CpuTranslator(known.objects, names.go)
        cpu_profile.report(*known.samples, known.objects, names.cpu, builder)
    return builder.finished()


def _some(prefix: str, found: Mapping[str, bytes], *names: str) -> dict[str, bytes]:
    """Of these outputs, those in pprof's format and those with `names`."""
    return {
        f"{prefix}.{name}": output
        for name, output in found.items()
        if name in names or name.endswith(".pb")
    }


def _labels(pairs: Sequence[Sequence[str]]) -> tuple[Label, ...]:
    return tuple(Label(*pair) for pair in pairs)


def _sampled_stack(values: list[Any]) -> SampledStack:
    """What samples saw of a stack; older recordings have no lengths, which come last."""
    sums, lengths = values[:_SUMS_OF_SAMPLES], values[_SUMS_OF_SAMPLES:]
    of_lengths = [WaitHistogram(tuple(each[0]), tuple(each[1]), each[2]) for each in lengths]
    return SampledStack(*sums, *of_lengths)


def _parked(fields: dict[str, Any]) -> ParkedAtEnd:
    """Of goroutines that were parked at the end, as the record tool kept them."""
    goroutines = [
        ParkedGoroutine(
            each["address"],
            each["goid"],
            each["wait_reason"],
            tuple(each["return_pcs"]),
            each["sema"],
            each["sequence"],
            None if each["labels"] is None else _labels(each["labels"]),
        )
        for each in fields["goroutines"]
    ]
    losses = tuple(Loss(*each) for each in fields["losses"])
    return ParkedAtEnd(goroutines, fields["read_ns"], losses)
