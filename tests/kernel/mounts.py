"""File systems of a test's own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[None]:
    """A tmpfs with these mount options on a folder."""
    subprocess.run(["mount", "-t", "tmpfs", *options, "none", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)
