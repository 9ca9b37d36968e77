"""The target `hostile` with names, arguments and labels that do harm where they are shown raw."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.kernel.programs import program
from tests.targets_run import Target

ROOM: Final = b"Room_" + b"x" * 115
TITLE: Final = "OWNED"
"""What the terminal or the page would be called if anything of this were obeyed."""
MARK: Final = "EVIL"
"""Stands in each name, however it is shown."""
NAME: Final = (
    b"\x1b]0;OWNED\x07\x1b[2J\x9b\xc2\x9b31m\xe2\x80\xae\xe2\x80\xa8\n\r\t;\xff"
    b"</script><img src=x onerror=document.title='OWNED'><!--EVIL "
).ljust(len(ROOM), b"_")
COMM: Final = b"\x1b]0;OWNED\x07\n;<b>EVIL\xff\xe2\x80\xae"
"""The base name of the file; the kernel's name of the process is the first 15 bytes of it."""
LABEL_KEY: Final = b"k\x1b]0;OWNED\x07\n;</script><b>EVIL\xff"
LABEL_VALUE: Final = b"v\x1b]0;OWNED\x07\n;</script><b>EVIL\xff\xe2\x80\xae"
RAW: Final = frozenset("\x1b\x07\x9b\u202e\u2028\r\t")
"""What must reach nobody's terminal."""


def hostile_program(folder: Path) -> Path:
    """A copy whose function, file and variable have that name in all of its tables."""
    assert len(NAME) == len(ROOM)
    data = program("hostile").read_bytes()
    assert data.count(ROOM) > 3
    copy = folder / os.fsdecode(COMM)
    copy.write_bytes(data.replace(ROOM, NAME))
    copy.chmod(0o755)
    return copy


@contextmanager
def hostile_target(folder: Path) -> Iterator[Target]:
    """The running program, with such labels."""
    labels = [os.fsdecode(each) for each in (LABEL_KEY, LABEL_VALUE)]
    with Target.start(hostile_program(folder), *labels) as target:
        yield target
