"""Check patch releases of Go: layouts, places to probe, and a recording against Go's own profile.

    python -m tests.tools.patch_releases              all releases that are not checked yet
    python -m tests.tools.patch_releases --ends       of these, the first and last of each line
    python -m tests.tools.patch_releases VERSION...   these: 1.17.0 is "1.17"

Needs root. Each toolchain is downloaded as a Go module, and removed after its check, which takes
one to three minutes. Each result is written at once: to patch_releases.json, and as a table to
docs/targets.md.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from symbolizer import ElfFile, GoBinary
from symbolizer.codeanalysis.park_sites import probe_sites
from symbolizer.codeanalysis.schedule_sites import schedule_sites
from symbolizer.codeanalysis.tracked_waits import tracked_wait_sites
from tests.differential.test_block import compare
from tests.toolchains import (
    WHEEL_VERSIONS,
    Toolchain,
    ToolchainError,
    download_module,
    install,
    minor_of,
    run,
    set_run_bits,
)
from tests.tools.generate_goruntime import OUTPUT, ROOT, describe, of_patch, patch_of

RESULTS: Final = Path(__file__).with_suffix(".json")
PAGE: Final = ROOT / "docs" / "targets.md"
BEGIN: Final = "<!-- Written by python -m tests.tools.patch_releases. -->\n"
END: Final = "<!-- End. -->\n"
BLOCKOPS: Final = ROOT / "tests" / "targets" / "blockops"
OLDEST_MINOR: Final = 17
OK: Final = "ok"


def releases() -> list[str]:
    """The releases that the module proxy lists, from Go 1.17 on, oldest first."""
    newest = install(WHEEL_VERSIONS[-1])
    env = {name: value for name, value in os.environ.items() if not name.startswith("GO")}
    text = run((newest / "bin" / "go", "list", "-m", "-versions", "go"), cwd=newest, env=env)
    versions = [word for word in text.split()[1:] if re.fullmatch(r"1\.\d+(\.\d+)?", word)]
    return sorted((v for v in versions if number(v)[0] >= OLDEST_MINOR), key=number)


def number(version: str) -> tuple[int, int]:
    """ "1.17.3" gives (17, 3), "1.17" gives (17, 0)."""
    _, minor, *patch = map(int, version.split("."))
    return minor, patch[0] if patch else 0


def ends(versions: Sequence[str]) -> list[str]:
    """The first and the last of each minor version."""
    lines: dict[int, list[str]] = {}
    for version in versions:
        lines.setdefault(number(version)[0], []).append(version)
    return [version for line in lines.values() for version in dict.fromkeys((line[0], line[-1]))]


def check(version: str) -> dict[str, str]:
    """Download a toolchain, check it in a process with a cache of its own, and remove it."""
    with tempfile.TemporaryDirectory() as scratch:
        module = download_module(version, Path(scratch) / "modules")
        set_run_bits(module.goroot)
        command = (sys.executable, "-m", __spec__.name, "--toolchain", str(module.goroot))
        env = os.environ | {"XDG_CACHE_HOME": scratch}
        done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise ToolchainError(f"Go {version}: {done.stdout}{done.stderr}")
    result: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return result


def checked(goroot: Path) -> dict[str, str]:
    """What was found of a toolchain: each check with "ok", or with what differs."""
    version = (goroot / "VERSION").read_text().split()[0].removeprefix("go")
    results = {"layouts": layouts(goroot)}
    program = Toolchain(version, goroot).build(BLOCKOPS)
    results["probes"] = places(program)
    with tempfile.TemporaryDirectory() as folder:
        try:
            compare(program, Path(folder))
            results["recording"] = OK
        except AssertionError as error:
            line = traceback.extract_tb(error.__traceback__)[-1].line
            results["recording"] = str(error).partition("\n")[0] or line or "differs"
    return results


def layouts(goroot: Path) -> str:
    """Which facts about the runtime differ from those in the data of its minor version."""
    minor, entry = describe(goroot)
    stored = of_patch(json.loads(OUTPUT.read_text())[minor], patch_of(entry))
    structs = entry.pop("structs")
    del entry["toolchain"]
    other = [name for name, value in entry.items() if value != stored[name]]
    other += [name for name, row in structs.items() if row != stored["structs"].get(name)]
    return ", ".join(other) or OK


def places(program: Path) -> str:
    """The first kind of places that is not found in a program."""
    with ElfFile.open(program) as elf:
        binary = GoBinary.open(elf)
        for find in (probe_sites, tracked_wait_sites, schedule_sites):
            try:
                find(binary)
            except Exception as error:  # whichever: it is what the table shows
                return str(error)
    return OK


def table(results: dict[str, dict[str, str]]) -> str:
    """The results by minor version, in Markdown."""
    lines: dict[str, list[str]] = {}
    for version in sorted(results, key=number):
        lines.setdefault(minor_of(version), []).append(version)
    rows = ["| line | releases checked | layouts | places | recording |", "|---|---|---|---|---|"]
    for minor, versions in lines.items():
        names = ", ".join(full_name(version) for version in versions)
        cells = [summary(versions, results, name) for name in ("layouts", "probes", "recording")]
        rows.append(f"| {minor} | {names} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def full_name(version: str) -> str:
    """ "1.17" gives "1.17.0"."""
    minor, patch = number(version)
    return f"1.{minor}.{patch}"


def summary(versions: Sequence[str], results: dict[str, dict[str, str]], name: str) -> str:
    """ "ok", or which releases differ, and how."""
    wrong = [(v, results[v][name]) for v in versions if results[v][name] != OK]
    return "; ".join(f"{full_name(version)}: {text}" for version, text in wrong) or OK


def write(results: dict[str, dict[str, str]]) -> None:
    """Write both files."""
    ordered = {version: results[version] for version in sorted(results, key=number)}
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")
    PAGE.write_text(with_table(PAGE.read_text(), ordered))


def with_table(page: str, results: dict[str, dict[str, str]]) -> str:
    """The page with the table of the results."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{table(results)}\n{END}{rest.partition(END)[2]}"


def main(arguments: Sequence[str]) -> int:
    """Check what the arguments say. Returns 1 if a release differs or can't be checked."""
    if arguments[:1] == ["--toolchain"]:
        print(json.dumps(checked(Path(arguments[1]))))
        return 0
    results: dict[str, dict[str, str]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    wanted = list(arguments)
    if not wanted or wanted == ["--ends"]:
        listed = releases()
        chosen = ends(listed) if wanted else listed
        wanted = [version for version in chosen if version not in results]
    status = 0
    for version in wanted:
        try:
            results[version] = check(version)
        except ToolchainError as error:
            print(error, file=sys.stderr)
            status = 1
            continue
        print(version, results[version], flush=True)
        status |= any(text != OK for text in results[version].values())
        write(results)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
