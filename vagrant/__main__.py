"""Boot each kernel of kernels.toml, run tests in it, count the passes, write docs/kernels.md.

vagrant/matrix [--quick | --selection NAME] [KERNEL...]
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.toolchains import cache_dir
from vagrant import debian, kernels, results
from vagrant.kernels import Kernel, Matrix, Selection
from vagrant.machine import (
    Disks,
    Machine,
    MachineError,
    Report,
    boot,
    kvm_works,
    make_initrd,
    make_modules,
    make_payload,
)

CHECKOUT: Final = Path(__file__).resolve().parent.parent
PYTHON: Final = CHECKOUT / ".venv" / "bin" / "python"
# Without slowness, each test reports within this time.
QUIET_S: Final = 300.0


@dataclass
class Heard:
    """The lines of a report so far; prints each test, unless `silent`."""

    tests: list[results.Outcome] = field(default_factory=list)
    built: list[Path] = field(default_factory=list)
    release: str = ""
    silent: bool = False

    def __call__(self, report: Report) -> None:
        """Add one line."""
        if "test" in report:
            test = results.Outcome(report["test"], report["outcome"])
            self.tests.append(test)
            if not self.silent:
                print(f"  {test.outcome} {report['seconds']:7.1f} s  {test.name}", flush=True)
            if "why" in report and not self.silent:
                print(report["why"], flush=True)
        elif "built" in report:
            self.built.append(Path(report["built"]))
        elif "booted" in report:
            self.release = report["booted"]


def command(selection: Selection, port: str, *, slowness: float) -> list[str]:
    """The command line that runs a selection's tests and reports to `port`."""
    words = ["env", f"EBPFPROF_TEST_SLOWNESS={slowness:g}", str(PYTHON), "-m", "pytest"]
    words += ["-p", "vagrant.reporter", "--report-to", port, "-p", "no:cacheprovider"]
    return [*words, "-q", *selection.tests]


def on_host(selection: Selection, folder: Path, *, silent: bool) -> tuple[results.Run, list[Path]]:
    """Run a selection on the host, which builds the programs for guests: the row to compare with.

    `silent` for tests that fail on a supported host.
    """
    port = folder / "host.report"
    port.write_text("")
    print(f"{results.HOST}: Linux {os.uname().release}, {selection.name}", flush=True)
    start = time.monotonic()
    done = subprocess.run(
        command(selection, str(port), slowness=1), cwd=CHECKOUT, stdout=subprocess.DEVNULL
    )
    seconds = time.monotonic() - start
    heard = Heard(release=os.uname().release, silent=silent)
    for line in port.read_text().splitlines():
        heard(json.loads(line))
    stopped = "" if done.returncode in (0, 1) else f"pytest ended with status {done.returncode}"
    return _run(results.HOST, "this machine", selection, heard, seconds, stopped), heard.built


def in_guest(
    kernel: Kernel, selection: Selection, cache: Path, built: Sequence[Path]
) -> results.Run:
    """Boot a kernel and run a selection in it, all in one boot."""
    files = debian.kernel(cache, kernel.suite, kernel.package)
    folder = cache / "runs" / kernel.name
    folder.mkdir(parents=True, exist_ok=True)
    initrd = make_initrd(files, folder / "initrd")
    machine = Machine("kvm" if kvm_works(files, initrd) else "tcg")
    slowness = 1 if machine.accelerator == "kvm" else selection.slowness
    words = command(selection, "/dev/ttyS1", slowness=slowness)
    root = debian.root_file_system(cache, CHECKOUT, CHECKOUT / "vagrant" / "provision.sh")
    disks = Disks(
        root,
        make_modules(files, cache / "modules" / f"{files.release}.ext4"),
        make_payload(folder / "payload", CHECKOUT, cache_dir(), built, shlex.join(words)),
    )
    print(f"{kernel.name}: Linux {files.release}, {selection.name}, {machine.name}", flush=True)
    heard, stopped = Heard(), ""
    start = time.monotonic()
    try:
        status = boot(machine, files, initrd, disks, folder, quiet_s=QUIET_S * slowness, seen=heard)
        if status not in (0, 1):
            stopped = f"pytest ended with status {status}"
    except MachineError as error:
        print(error, file=sys.stderr)
        stopped = "the guest stopped before the tests ended"
    seconds = time.monotonic() - start
    heard.release = heard.release or files.release
    return _run(kernel.name, machine.name, selection, heard, seconds, stopped)


def _run(
    name: str, machine: str, selection: Selection, heard: Heard, seconds: float, stopped: str
) -> results.Run:
    return results.Run(
        kernel=name,
        release=heard.release,
        machine=machine,
        selection=selection.name,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        seconds=round(seconds, 1),
        expected=selection.passes,
        tests=tuple(heard.tests),
        stopped=stopped,
    )


def run_all(matrix: Matrix, chosen: Sequence[Kernel], selection: str) -> bool:
    """Run all, and save results kernel by kernel; returns whether all are as expected."""
    cache = cache_dir() / "vm"
    folder = cache / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    order = [results.HOST, *matrix.kernels]
    built: dict[str, list[Path]] = {}
    good = True
    for kernel in chosen:
        what = matrix.selection_for(kernel, selection)
        if what.name not in built:
            refused = kernel.expected == "refused"
            run, built[what.name] = on_host(what, folder, silent=refused)
            if not refused:
                good = _keep(run, order) and good
        good = _keep(in_guest(kernel, what, cache, _folders(built[what.name])), order) and good
    return good


def _keep(run: results.Run, order: Sequence[str]) -> bool:
    runs = results.load()
    runs[run.kernel] = run
    results.save(runs, order)
    results.write_document(results.load())
    print(f"{run.kernel}: {run.passes} of {run.expected} {run.stopped}", flush=True)
    return run.good


def _folders(programs: Sequence[Path]) -> list[Path]:
    return sorted({program.parent for program in programs})


def main(arguments: Sequence[str]) -> int:
    """Command line. Returns 0 if every kernel gave the expected result, 1 if not, 2 on errors."""
    parser = argparse.ArgumentParser(prog="vagrant/matrix", description=__doc__.split("\n")[0])
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help="which (default: all)")
    parser.add_argument("--selection", default="whole", help="of tests (default: whole)")
    parser.add_argument("--quick", dest="selection", action="store_const", const="quick")
    parsed = parser.parse_args(arguments)
    # So that no guest outlives the command.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        matrix = kernels.read()
        unknown = [name for name in parsed.kernels if name not in matrix.kernels]
        if unknown:
            known = ", ".join(matrix.kernels)
            raise kernels.MatrixError(f"There is no kernel {', '.join(unknown)}; there is {known}.")
        chosen = [matrix.kernels[name] for name in parsed.kernels or matrix.kernels]
        return 0 if run_all(matrix, chosen, parsed.selection) else 1
    except (debian.DebianError, kernels.MatrixError, results.ResultsError) as error:
        print(f"matrix: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
