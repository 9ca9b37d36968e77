"""Memory of the target that is paged out while it is recorded: unreadable data is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from ebpfprof.goruntime import process as goruntime
from ebpfprof.goruntime.process import GoTarget
from ebpfprof.process.process import Target as Process
from ebpfprof.profilers.options import Options
from ebpfprof.recording.session import Session
from symbolizer.codeanalysis.park_sites import probe_sites
from symbolizer.x86.disasm import decode
from tests.builds import in_full
from tests.go_target import inspect
from tests.kernel.debugger import traced
from tests.kernel.kernel_state import has_probes
from tests.kernel.paging import page_out, page_out_ranges, swap, swapped_bytes
from tests.kernel.unharmed import ALL_PROFILES, await_true, check, checker, whole_profiles
from tests.recorder import recording
from tests.targets_run import Target
from tests.toolchains import cache_dir, toolchain

pytestmark = pytest.mark.alone

SCALE: Final = Path(__file__).parent.parent / "targets" / "scale"
GOROUTINES: Final = 100
PAGE: Final = 4096
BOUNDS_BYTES: Final = 16  # of its stack, at the start of a runtime.g


@pytest.fixture(scope="module")
def room() -> Iterator[None]:
    with swap(cache_dir()):
        yield


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize("block_rate_ns", [1, *in_full(1000)])
def test_stacks_that_are_paged_out_are_cut_and_counted(block_rate_ns: int) -> None:
    """A BPF program at a probe can't wait for a page, so it cuts the stack there."""
    options = Options(kinds=("block",), block_rate_ns=block_rate_ns)
    with checker("spread") as target, Session([target.pid], options) as session:
        session.start()

        def cut_short() -> int:
            page_out(target.pid)
            lost = {loss.name: loss.count for loss in session.losses()}
            return lost.get("stack_unreadable", 0)

        await_true(lambda: cut_short() > 0, "all stacks could be read")
        assert swapped_bytes(target.pid) > 0
        check(target)
        (report,) = session.finish()
        (lost,) = [loss for loss in session.losses() if loss.name == "stack_unreadable"]
        (profile,) = report.profiles
    assert f"incomplete: {lost}" in profile.comments
    # Those that are cut count anyway.
    assert sum(sample.values[0] for sample in profile.samples) > lost.count


@pytest.mark.usefixtures("room")
def test_a_runtime_g_with_a_paged_out_end_loses_only_its_labels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a runtime.g that lies in two pages, the first has all fields that its stack needs."""
    monkeypatch.setattr(  # of programs that can't set labels none are read
        goruntime, "probe_sites", lambda binary: replace(probe_sites(binary), sets_labels=True)
    )
    program = toolchain("1.27").build(SCALE)
    with (
        Target.start(program, f"-goroutines={GOROUTINES}") as target,
        Process(target.pid) as process,
        traced(target.pid) as tracing,
        Session([target.pid], Options(kinds=("block",))) as session,
    ):
        go = inspect(process)
        g_bytes = go.binary.layout.offset("g", "labels") + 8
        before_park = before_probe(go, "runtime.chanrecv")
        tracing.ask("continue", "continued")
        target.ask("park", "parked")
        tracing.ask("stop", "stopped")
        session.start()
        rounds = 0
        while not (lost := {loss.name: loss.count for loss in session.losses()}):
            target.say("release 1")
            rounds += 1
            g = 0
            while not g % PAGE < PAGE - BOUNDS_BYTES < PAGE < g % PAGE + g_bytes:
                g = int(tracing.ask(f"catch {before_park:x}", "caught ").split()[-1], 16)
            # It may come back before the thread is at the probe: the runtime checks it.
            page_out_ranges(target.pid, [((g + g_bytes) // PAGE * PAGE, PAGE)])
            tracing.ask("continue", "continued")
            target.expect("parked")
            tracing.ask("stop", "stopped")
        assert lost.keys() == {"labels_unreadable"}
        tracing.ask("continue", "continued")
        target.ask("release 1", "parked")  # goroutines that wait since the last round
        (report,) = session.finish()
    counts = Counter[str]()
    for sample in report.profiles[0].samples:
        names = {f.function for location in sample.locations for f in location.frames}
        counts["main.wait" if "main.wait" in names else "other"] += sample.values[0]
    assert counts["main.wait"] == rounds * GOROUTINES


def before_probe(go: GoTarget, function: str) -> int:
    """The address of the instruction before the probe where this function parks a goroutine."""
    binary = go.binary
    (found,) = binary.functions_named(function)
    (probe,) = [p.start_pc for p in go.sites.parks if found.entry <= p.start_pc < found.end]
    code = decode(binary.elf.read(found.entry, probe - found.entry), found.entry)
    return code[-1].address + go.load_bias


@pytest.mark.usefixtures("room")
def test_a_target_paged_out_repeatedly_stays_right(tmp_path: Path) -> None:
    """Code with probes, tables and stacks are paged out, also while probes are attached."""
    with checker("spread", "procs") as target:
        page_out(target.pid)
        with recording(target.pid, tmp_path, *ALL_PROFILES) as recorder:
            for _ in range(5):
                page_out(target.pid)
            assert has_probes(target.pid)
            check(target)
            page_out(target.pid)
            recorder.interrupt()
            page_out(target.pid)
            finished = recorder.finish()
        assert finished.code == 0, finished.stderr
        assert "Traceback" not in finished.stderr
    assert len(whole_profiles(tmp_path)) == 4
