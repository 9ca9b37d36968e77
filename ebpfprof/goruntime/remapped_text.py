"""Code that a program has replaced by a copy in memory, as tools for huge pages do.

The kernel attaches uprobes to pages of the file. In a copy they never fire, and there
is no error.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ebpfprof.console.text import printable
from ebpfprof.errors import UnsupportedTarget

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget


def require_probes(go: GoTarget) -> None:
    """Raise UnsupportedTarget if probes can't fire in the process."""
    if warning := remapped_warning(go):
        raise UnsupportedTarget(warning)


def is_remapped(go: GoTarget) -> bool:
    """Whether a place to probe lies in a mapping of something else than the runtime's file.

    Those in plugins lie in files of their own.
    """
    sites = go.probed[0].sites
    places = {pc + go.load_bias for pc in (*(park.start_pc for park in sites.parks), sites.wake_pc)}
    # File systems that stack others may show other inodes, but the same names.
    others = [
        line
        for line in go.target.executable_lines()
        if line.path != go.path and any(line.start <= place < line.limit for place in places)
    ]
    return any(line.inode != os.fstat(go.binary.elf.fd).st_ino for line in others)


def remapped_warning(go: GoTarget) -> str:
    """A sentence about what is missing since the code was replaced, "" if it was not."""
    if not is_remapped(go):
        return ""
    return (
        f"Process {go.target.pid} ({printable(go.target.name)}) has replaced its code by a copy "
        "in memory (for huge pages?), where the kernel can't probe it. Without probes there are "
        "--profile cpu, wall, goroutine and ebpfprof dump."
    )
