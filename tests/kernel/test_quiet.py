"""-q: where the files are, and nothing else unless something is wrong."""

from __future__ import annotations

from pathlib import Path

from tests.kernel.programs import program
from tests.kernel.run_command import BLOCK, run_brief
from tests.recorder import run
from tests.targets_run import Target


def test_a_quiet_attach_says_only_where_the_file_is(tmp_path: Path) -> None:
    with Target.start(program("ticker")) as target:
        finished = run("-q", "--pid", str(target.pid), "--duration", "0.5", folder=tmp_path)
    (file,) = tmp_path.iterdir()
    output = (finished.code, finished.stdout.decode(), finished.stderr)
    assert output == (0, f"Written: {file.name}\n", "")


def test_a_quiet_attach_still_says_what_is_wrong(tmp_path: Path) -> None:
    with Target.start(program("ticker")) as target:
        arguments = ("--quiet", "--pid", str(target.pid), "--duration", "0.1", "-o", "gone/x.pb.gz")
        finished = run(*arguments, folder=tmp_path)
    assert (finished.code, finished.stdout) == (9, b"")
    assert "gone" in finished.stderr


def test_a_quiet_run_says_only_where_the_file_is(tmp_path: Path) -> None:
    finished = run_brief(folder=tmp_path, options=("-q", *BLOCK))
    (file,) = tmp_path.iterdir()
    assert (finished.code, finished.stderr) == (0, f"Written: {file.name}\n")
