"""Reading and writing profile files, for `report`, `diff` and `history`."""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path

import click

from ebpfprof.console.output_file import IfTaken, OutputFile
from ebpfprof.console.output_folder import invoking_user
from ebpfprof.console.terminal import say, write_bytes
from ebpfprof.console.text import printable
from ebpfprof.errors import EbpfprofError, InvalidProfile
from ebpfprof.export import pprof
from ebpfprof.export.formats import FORMATS
from ebpfprof.profile.model import Profile
from ebpfprof.system.signals import Deferred

STDIN = Path("-")
_PIECE = 1 << 20


def read_profile(path: Path) -> Profile:
    """The profile in a pprof file; "-" is standard input.

    Raises EbpfprofError if the file can't be read, InvalidProfile if it is not a profile,
    click.UsageError if standard input is a terminal.
    """
    shown = "Standard input" if path == STDIN else printable(str(path))
    if path == STDIN and sys.stdin is not None and sys.stdin.isatty():
        raise click.UsageError("- reads standard input, which is a terminal: use a file.")
    try:
        data = _read(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise EbpfprofError(
            f"{shown} cannot be read: {reason}. Use a pprof file, such as one of ebpfprof attach."
        ) from error
    try:
        return pprof.decode(data)
    except InvalidProfile as error:
        raise InvalidProfile(f"{shown}: {error}") from error


def _read(path: Path) -> bytes:
    """The bytes of the file, up to the maximum size of a profile. Raises OSError, ValueError."""
    fd = 0 if path == STDIN else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    with open(fd, "rb", closefd=path != STDIN) as file:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        # In pieces: a single read would allocate memory for the largest profile.
        data = bytearray()
        while len(data) <= pprof.MAX_DECODED_BYTES and (piece := file.read(_PIECE)):
            data += piece
        return bytes(data)


def write(data: bytes, format_name: str, output: Path | None, *, force: bool) -> None:
    """Write to the file `output`, or to stdout if it is None or "-".

    `force` replaces an existing file. Raises OutputError.
    """
    is_text, suffix = FORMATS[format_name].is_text, FORMATS[format_name].suffix
    if output is None or str(output) == "-":
        with OutputFile.prepare("-", is_text=is_text):
            pass  # raises for a terminal, which can't show binary data
        # If this fails, the user can run the command again.
        if format_name == "text":
            say(data.decode(), end="")
        else:
            write_bytes(data)
        return
    if_taken: IfTaken = "replace" if force else "refuse"
    with (
        Deferred(),
        OutputFile.prepare(
            output, owner=invoking_user(), is_text=is_text, suffix=suffix, if_taken=if_taken
        ) as file,
    ):
        file.commit(data)
    say(f"Written: {printable(str(output))}", err=True)
