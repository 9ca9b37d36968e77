"""Child processes that write output files: as another user, to another stdout, or to be killed."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PRELUDE = """
import os, sys
from pathlib import Path
from ebpfprof.console.output_file import OutputFile
from ebpfprof.console.output_folder import Owner, invoking_user
"""


def spawn(
    code: str,
    *arguments: str | Path,
    cwd: Path | None = None,
    stdout: int = subprocess.PIPE,
    user: int | None = None,
    environment: dict[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Python running `code` with console.output_file's names here; stdin and stderr are pipes.

    It becomes `user` once all is imported: he may have no way into this checkout.
    """
    become = f"os.setgroups([]); os.setgid({user}); os.setuid({user})\n" if user else ""
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + become + code, *map(str, arguments)],
        cwd=cwd,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", **(environment or {})},
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=subprocess.PIPE,
    )
