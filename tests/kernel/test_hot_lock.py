"""An HTTP service with one hot lock: what is said of its releases, exactly and within a bound."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebpfprof.export import pprof
from ebpfprof.profile.evidence import FEW_RELEASES, are_releases_known, is_unknown_release
from ebpfprof.profile.model import Profile, Sample
from tests.kernel.programs import TARGETS, program
from tests.recorder import COMMAND
from tests.targets_run import Target

SOURCE = TARGETS / "services" / "hotlock" / "main.go"


def line_of(comment: str) -> int:
    lines = SOURCE.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if f"// {comment}" in line)


HIT, FETCHED = line_of("released: hit"), line_of("released: fetched")


@pytest.fixture(scope="module")
def service() -> Iterator[Target]:
    with Target.start(program("services/hotlock")) as target:
        yield target


def shares(releases: tuple[Sample, ...]) -> dict[int, float]:
    """The parts of the delay that were released at each line of the service."""
    found = Counter[int]()
    for sample in releases:
        for frame in sample.frames:
            if frame.function == "main.(*priceCache).get":
                found[frame.line] += sample.values[1]
    return {line: ns / found.total() for line, ns in found.items()}


def recorded(service: Target, folder: Path, *arguments: str) -> tuple[str, Profile]:
    """What `attach` prints, and the mutex profile that it writes."""
    command = (*COMMAND, str(service.pid), "--profile", "mutex", "--by-lock", *arguments)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    (written,) = folder.glob("*.mutex.pb.gz")
    return done.stdout, pprof.decode(written.read_bytes())


@pytest.mark.full
def test_all_releases_recorded_are_charged_to_those_after_the_fetch(
    service: Target, tmp_path: Path
) -> None:
    output, exact = recorded(service, tmp_path, "-d", "4", "--max-overhead", "0")
    assert shares(exact.samples)[FETCHED] > 0.8
    assert f"main.go:{FETCHED}" in output
    assert "not recorded" not in output


@pytest.mark.full
def test_within_the_default_bound_no_share_contradicts_that(
    service: Target, tmp_path: Path
) -> None:
    """Either the releases are known, or nothing is said of them, of counts and of hold times."""
    output, found = recorded(service, tmp_path, "-d", "5")
    table = output[output.index("Releases of contended locks") :]
    if are_releases_known(found.samples):
        assert shares(found.samples)[FETCHED] > 0.5
        return
    assert f"main.go:{FETCHED}" not in table.replace("waited for", "")
    assert FEW_RELEASES in table.lower()
    assert "--max-overhead 0 records every release at about" in table
    (lock,) = (
        line for line in table.splitlines() if "main.priceCache.mu" in line and "sync" in line
    )
    assert lock.split()[3:6] == ["-", "-", "-"]
    unknown_ns = sum(sample.values[1] for sample in found.samples if is_unknown_release(sample))
    assert unknown_ns > 0
    report = subprocess.run(
        (*COMMAND[:-1], "report", str(next(tmp_path.glob("*.mutex.pb.gz")))),
        capture_output=True,
        text=True,
        check=True,
    )
    assert FEW_RELEASES in report.stdout.lower()
    assert "Mutex.Unlock" not in report.stdout
