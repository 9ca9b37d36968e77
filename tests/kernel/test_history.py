"""What was recorded of real programs, through the ring and back by `ebpfprof history`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ebpfprof.export import pprof
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.profile.delta import difference, merged
from ebpfprof.profile.model import Profile
from ebpfprof.profile.service import ServiceIdentity, ServiceWindow
from ebpfprof.profilers.account import RecordingAccount
from ebpfprof.profilers.options import Options
from ebpfprof.recording.live import LiveSession
from ebpfprof.recording.target import LiveTarget
from ebpfprof.ring.reader import RingArchive
from ebpfprof.ring.writer import Ring
from tests.kernel.live_counts import HANDS, count_in
from tests.kernel.programs import program
from tests.kernel.users import NOBODY, by_user, ebpfprof, open_checkout
from tests.kernel.verbs import verb
from tests.targets_run import Target
from tests.toolchains import toolchain

SHOP = ServiceIdentity("shop", version="1.2", pod="shop-7")
ALL = 0, 1 << 62


@dataclass
class Windows:
    """Ends windows of a target as the agent does, and gives each a minute of the past hour."""

    live: LiveSession
    target: LiveTarget
    ring: Ring
    start_ns: int = field(default_factory=lambda: kernel_now_ns() // 2)
    begun_s: float = field(default_factory=lambda: time.time() // 60 * 60 - 1800)
    sums: Mapping[str, Profile] = field(default_factory=dict)
    profiles: list[Mapping[str, Profile]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sums = self._snapshot()

    def end(self) -> None:
        after = self._snapshot()
        found = {
            kind: after[kind] if kind == "goroutine" else difference(after[kind], self.sums[kind])
            for kind in after
        }
        self.sums = after
        begun_s = self.begun_s + 60 * len(self.profiles)
        self.profiles.append(found)
        assert self.ring.write(
            ServiceWindow(
                *(SHOP, self.target.pid, self.start_ns, "steps", "go1.27"),
                *(begun_s, begun_s + 60, found),
            )
        ), self.ring.state()

    def _snapshot(self) -> dict[str, Profile]:
        return {
            profile.kind: profile
            for profile in self.live.report(self.live.sums(self.target)).profiles
        }

    def span(self, first: int, last: int) -> tuple[str, ...]:
        """Options for the minutes from the first to the last."""
        begin, end = (
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.begun_s + 60 * each))
            for each in (first, last)
        )
        return "--since", begin, "--until", end


def samples(profile: Profile) -> dict[tuple[Any, ...], tuple[int, ...]]:
    """The values of each stack, by functions and lines."""
    found: dict[tuple[Any, ...], tuple[int, ...]] = {}
    for sample in profile.samples:
        key = tuple((f.function, f.line) for f in sample.frames), sample.labels
        found[key] = tuple(
            map(sum, zip(sample.values, found.get(key, (0,) * len(sample.values)), strict=True))
        )
    return found


def history(folder: Path, *arguments: str) -> str:
    output = verb("history", "--path", str(folder), *arguments)
    assert output.code == 0, output.stderr
    return output.stdout


def test_history_distinguishes_the_minutes_of_a_program_also_when_it_is_dead(
    tmp_path: Path,
) -> None:
    """One hand-over in the first minute, three in the second; then the program ends."""
    folder = tmp_path / "ring"
    options = Options(kinds=("block", "mutex", "goroutine"), max_overhead=0.0)
    with (
        LiveSession(options, capacity=1) as live,
        Ring(folder, keep_free_bytes=0) as ring,
        Target.start(program("steps")) as steps,
    ):
        target = live.add(steps.pid)
        live.start(target)
        windows = Windows(live, target, ring)
        for times in (1, 3):
            for _ in range(times):
                steps.ask("hand", "done")
            windows.end()
        live.stop(target)
        live.remove(target)
    written = {}
    for name, span in (("first", (0, 1)), ("second", (1, 2)), ("both", (0, 2))):
        path = tmp_path / f"{name}.pb.gz"
        chosen = ("--name", "shop", "--profile", "block", "-o", str(path))
        history(folder, *windows.span(*span), *chosen)
        written[name] = pprof.decode(path.read_bytes())
    assert {name: count_in(each, "main.hand") for name, each in written.items()} == {
        "first": HANDS,
        "second": 3 * HANDS,
        "both": 4 * HANDS,
    }
    whole = merged([profile["block"] for profile in windows.profiles])
    assert samples(written["both"]) == samples(whole)
    assert written["both"].duration_ns == whole.duration_ns
    top = toolchain("1.27").go("tool", "pprof", "-sample_index=contentions", "-top", path)
    assert f"{4 * HANDS} " in top
    raw = toolchain("1.27").go("tool", "pprof", "-raw", next(folder.rglob("*.block.pb.gz")))
    assert "main.hand" in raw
    table = history(folder, *windows.span(1, 2), "--name", "steps")
    assert f" {3 * HANDS} " in table
    assert "Goroutines of shop at " in table
    found = json.loads(history(folder, *windows.span(0, 2), "--json"))
    (process,) = found["processes"]
    assert (process["pod"], process["pid"]) == ("shop-7", steps.pid)
    assert process["profiles"]["block"]["totals"][0]["value"] == sum(
        sample.values[0] for sample in whole.samples
    )


@pytest.mark.full
def test_windows_of_an_estimate_keep_their_errors_through_files(tmp_path: Path) -> None:
    """What files give back says the same as windows that were never in files."""
    options = Options(kinds=("block", "mutex"), max_overhead=0.3)
    with (
        LiveSession(options, capacity=1) as live,
        Ring(tmp_path, keep_free_bytes=0) as ring,
        Target.start(program("pingpong")) as running,
    ):
        target = live.add(running.pid)
        live.start(target)
        windows = Windows(live, target, ring)
        for _ in range(200):  # more rounds than there is time for
            running.say("go")
        for _ in range(2):
            time.sleep(1.5)  # an estimate takes windows, which come twice a second
            windows.end()
        live.stop(target)
        live.remove(target)
    with RingArchive(tmp_path) as archive:
        files = [file for file in archive.between(*ALL).files if file.kind == "block"]
        found = merged([archive.load(each) for each in files])
    whole = merged([profile["block"] for profile in windows.profiles])
    assert any(each.is_estimate for each in files)
    assert isinstance(found.account, RecordingAccount)
    assert found.account.coverage is not None
    reported = [comment for comment in found.comments if "standard error" in comment]
    assert reported
    assert reported[0] == next(each for each in whole.comments if "standard error" in each)
    assert samples(found) == samples(whole)
    variances = sum(sample.variance for sample in found.samples)
    before = sum(each.variance for each in whole.samples)
    assert abs(variances - before) <= 0.01 * before


def test_other_users_are_advised_to_use_sudo(tmp_path: Path) -> None:
    Ring(tmp_path / "ring", keep_free_bytes=0).close()
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    with open_checkout() as checkout:
        as_nobody = (*by_user(NOBODY, ()), *ebpfprof(checkout, "history"))
        output = verb("--path", str(tmp_path / "ring"), command=as_nobody)
    assert (output.code, output.stdout) == (4, "")
    assert "can be read by root only" in output.stderr
    assert "use sudo" in output.stderr
