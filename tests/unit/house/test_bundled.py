"""What others made and we bundle: unchanged, with its licence beside it."""

from __future__ import annotations

import hashlib

import pytest

from tests.tools.rooms import ROOT

WEB = ROOT / "ebpfprof" / "web"
# Each file of the package on npm that it is from, with its SHA-256 and where its licence is.
BUNDLED = {
    "dagre.min.js": (
        "@dagrejs/dagre 3.1.3, dist/dagre.min.js, MIT",
        "54a503e346f93ca0bb10abe7999587e037262935687aca45eb4e4b0f64bbb578",
        "dagre.LICENSE",
    ),
}


@pytest.mark.parametrize("name", BUNDLED)
def test_a_bundled_file_is_the_one_that_was_published(name: str) -> None:
    _, wanted, licence = BUNDLED[name]
    assert hashlib.sha256((WEB / name).read_bytes()).hexdigest() == wanted
    assert "Copyright (c)" in (WEB / licence).read_text()


def test_every_minified_file_is_known() -> None:
    assert {path.name for path in WEB.glob("*.min.*")} == set(BUNDLED)
