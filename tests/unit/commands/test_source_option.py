"""The option --source of `report`: lines of source files in an HTML file, and in nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ebpfprof.commands.cli import cli
from ebpfprof.errors import ExitCode
from ebpfprof.export import pprof
from tests.unit.export.small_profile import SMALL


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "waits.pb.gz"
    path.write_bytes(pprof.encode(SMALL))
    return path


def report(saved: Path, *options: str) -> Result:
    return CliRunner().invoke(cli, ["report", str(saved), *options])


def sources(page: str) -> dict[str, Any] | None:
    found = re.search(r'<script type="application/json" id="sources">(.*?)</script>', page)
    return json.loads(found[1]) if found else None


def test_an_html_file_holds_lines_that_the_profile_names(saved: Path, tmp_path: Path) -> None:
    folder = tmp_path / "src"
    folder.mkdir()
    lines = "".join(f"line {number} </script>\n" for number in range(1, 100))
    (folder / "main.go").write_text(lines)
    (folder / "other.go").write_text("never named\n")
    result = report(saved, "-f", "html", "--source", str(folder))
    assert result.exit_code == ExitCode.OK, result.output
    found = sources(result.stdout)
    assert found is not None
    assert list(found) == ["/src/main.go"]
    assert found["/src/main.go"]["path"] == str(folder / "main.go")
    assert found["/src/main.go"]["lines"]["12"] == "line 12 </script>"
    assert "99" not in found["/src/main.go"]["lines"]


def test_without_it_there_is_not_a_text(saved: Path) -> None:
    result = report(saved, "-f", "html")
    assert result.exit_code == ExitCode.OK
    assert sources(result.stdout) is None


def test_other_formats_and_folders_are_refused(saved: Path, tmp_path: Path) -> None:
    result = report(saved, "--source", str(tmp_path))
    assert result.exit_code == ExitCode.USAGE
    assert "--source needs HTML: add -f html" in result.stderr
    result = report(saved, "-f", "html", "--source", str(tmp_path / "gone"))
    assert result.exit_code == ExitCode.USAGE
    assert "does not exist" in result.stderr
