"""Libraries of the page that stand in our tree: unchanged, each with its licence."""

from __future__ import annotations

import hashlib
import json
import tomllib
from fnmatch import fnmatch

from tests.tools.rooms import ROOT

FOLDER = ROOT / "ebpfprof" / "web" / "vendor"
LIST = FOLDER / "vendored.json"
LIBRARIES = json.loads(LIST.read_text())


def test_each_file_is_the_one_that_was_published() -> None:
    listed = {name: digest for each in LIBRARIES for name, digest in each["sha256"].items()}
    found = {
        str(path.relative_to(FOLDER)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in FOLDER.rglob("*")
        if path.is_file() and path != LIST
    }
    assert found == listed


def test_each_library_has_its_licence_and_says_where_it_is_from() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for each in LIBRARIES:
        licence = FOLDER / each["license_file"]
        assert each["license_file"] in each["sha256"]
        assert "Permission is hereby granted" in licence.read_text()
        assert each["license"] in project["license"].split()
        path = str(licence.relative_to(ROOT))
        assert any(fnmatch(path, pattern) for pattern in project["license-files"])
        assert each["version"] in each["source"]


def test_the_page_loads_each_library() -> None:
    page = (ROOT / "ebpfprof" / "web" / "index.html").read_text()
    for each in LIBRARIES:
        for name in each["sha256"]:
            if name != each["license_file"]:
                assert f"/assets/vendor/{name}" in page
