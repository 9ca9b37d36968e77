"""The lines for sudoers in docs/trust.md, in force: what an ordinary user may run as root."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ebpfprof.export import pprof
from tests.kernel.namespaces import NEEDS_NAMESPACES
from tests.kernel.programs import program
from tests.kernel.users import NOBODY, ROOT, by_user
from tests.targets_run import DEADLINE_S, Target

pytestmark = NEEDS_NAMESPACES

COMMAND = "/opt/ebpfprof/bin/ebpfprof"
GOOD = "attach --pid {pid} --profile block --duration 1 -o -"
ENTER = (
    'mount -t tmpfs none /opt && mkdir -p /opt/ebpfprof/bin && mount --bind "$1" /etc/sudoers && '
    'cp "$2" /opt/ebpfprof/bin/ebpfprof && shift 2 && exec "$@"'
)


@pytest.fixture
def entering(tmp_path: Path) -> tuple[str, ...]:
    """What to put before a command of an ordinary user, where those lines are in force."""
    lines = [line.strip() for line in (ROOT / "docs" / "trust.md").read_text().splitlines()]
    at = next(i for i, line in enumerate(lines) if line.startswith("Cmnd_Alias"))
    alias, grant = lines[at : at + 2]
    assert grant.startswith("%profilers ")
    sudoers, script = tmp_path / "sudoers", tmp_path / "ebpfprof"
    sudoers.write_text(f"{alias}\n{grant.replace('%profilers', f'#{NOBODY}')}\n")
    sudoers.chmod(0o440)
    python = f"PYTHONPATH={shlex.quote(str(ROOT))} {shlex.quote(sys.executable)}"
    script.write_text(f'#!/bin/sh\n{python} -m ebpfprof "$@"\n')
    script.chmod(0o755)
    isolating = ("/usr/bin/unshare", "--mount", "/bin/sh", "-c", ENTER, "sh", sudoers, script)
    # Without the bounds that tests of rights set: sudo gives root's.
    as_user = [word for word in by_user(NOBODY) if not word.startswith("--bounding-set")]
    return (*map(str, isolating), *as_user, "/usr/bin/sudo", "-n")


def test_the_sudoers_line_allows_a_profile_on_stdout_only(
    entering: tuple[str, ...], tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with Target.start(program("ticker")) as target:
        words = GOOD.format(pid=target.pid).split()
        done = subprocess.run(
            [*entering, COMMAND, *words], capture_output=True, cwd=folder, timeout=DEADLINE_S
        )
    assert done.returncode == 0, done.stderr.decode()
    assert pprof.decode(done.stdout).samples
    assert os.listdir(folder) == []


OTHERS = {
    "another file": "attach --pid 1 --profile block --duration 1 -o /etc/cron.d/x",
    "more behind it": GOOD + " -o /etc/cron.d/x --force",
    "in one word": GOOD.replace("-o -", "-o -/../etc/cron.d/x"),
    "a file of the current folder": "attach --pid 1 --profile block --duration 1",
    "another verb": "run -- /bin/sh",
    "a verb before it": "run -- /bin/sh -c attach --pid 1 --profile cpu --duration 1 -o -",
    "words with spaces": "attach '--pid 1 -o /etc/cron.d/x' --profile block --duration 1 -o -",
    "lines": "attach --pid 1 --profile block --duration '1\n-o /etc/x' -o -",
    "a socket": "serve --listen unix:/etc/x",
}


@pytest.mark.parametrize("words", OTHERS.values(), ids=OTHERS.keys())
def test_the_sudoers_line_allows_no_other_command(words: str, entering: tuple[str, ...]) -> None:
    # To list a command asks whether it may be run, and does not run it.
    def asks(typed: str) -> subprocess.CompletedProcess[bytes]:
        command = [*entering, "-l", COMMAND, *shlex.split(typed)]
        return subprocess.run(command, capture_output=True, timeout=DEADLINE_S, check=False)

    assert asks(GOOD.format(pid=1)).returncode == 0
    assert asks(words.format(pid=1)).returncode == 1


def test_visudo_accepts_the_lines(entering: tuple[str, ...], tmp_path: Path) -> None:
    del entering
    command = ["/usr/sbin/visudo", "-c", "-f", str(tmp_path / "sudoers")]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, textwrap.indent(done.stdout.decode(), "  ")
