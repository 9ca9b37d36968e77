"""`ebpfprof memory --references`: what keeps the objects of processes alive."""

from __future__ import annotations

import re
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ebpfprof.commands.memory_reports import ProcessReports
from ebpfprof.commands.profile_files import write
from ebpfprof.console.quantities import similar
from ebpfprof.console.terminal import has_color, say, width
from ebpfprof.console.text import printable, quantity
from ebpfprof.errors import EbpfprofError
from ebpfprof.export import formats
from ebpfprof.export import references as exported
from ebpfprof.export.tables import references as table
from ebpfprof.goruntime.references.reader import ReferenceReader

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ebpfprof.goruntime.open_processes import OpenOptions, OpenProcess
    from ebpfprof.process.file_opener import FileOpener

_LONG_BYTES: Final = 1 << 30
_S_PER_BYTE: Final = 7 / (1 << 30)
"""Measured: see docs/design/references.md."""
_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]+")


class ReferenceReports(ProcessReports):
    """Shows what keeps objects alive."""

    def __init__(
        self,
        files: FileOpener,
        *,
        as_json: bool,
        show_all: bool,
        why: str | None,
        output: Path | None,
        format_name: str,
        force: bool,
        opening: OpenOptions,
    ) -> None:
        """`why` is a type, an address or a function; None for all roots."""
        super().__init__(files, as_json=as_json, opening=opening)
        self._show_all, self._why = show_all, why
        self._output, self._format_name, self._force = output, format_name, force

    def _text(self, pid: int) -> str:
        with self._processes.open(pid) as process:
            target = process.target
            version = printable(process.binary().version.text)
            with target.allowance:
                reader, now_s = ReferenceReader(process.go()), time.time()
                if self._why is not None:
                    reasons = reader.reasons(self._why, _slots(reader, self._why, process))
                    if self._as_json:
                        return exported.encode_reasons(reasons, pid, target.name, version, now_s)
                    return table.render_reasons(reasons, width=width(sys.stdout))
            references = reader.references(begun=partial(_say_how_long, pid))
            if self._as_json:
                return exported.encode(references, pid, target.name, version, now_s)
            if self._format_name != "text":
                profile = exported.profile(references, process.go().path, round(now_s * 1e9))
                data = formats.encode(profile, self._format_name)
                write(data, self._format_name, self._output, force=self._force)
                return ""
            text = table.render(
                references,
                f"process {pid} ({printable(target.name)}, {version})",
                show_all=self._show_all,
                width=None if self._output else width(sys.stdout),
                color=self._output is None and has_color(sys.stdout),
            )
            if self._output is None:
                return text
            write(text.encode(), "text", self._output, force=self._force)
            return ""


def _say_how_long(pid: int, size: int) -> None:
    """Say how long it takes to read this many bytes of objects with pointers, if it is long."""
    if size >= _LONG_BYTES:
        seconds = round(size * _S_PER_BYTE)
        say(
            f"Reading {quantity(size, 'bytes')} of objects with pointers in process {pid}: at "
            f"least {seconds} s.",
            err=True,
        )


def _slots(reader: ReferenceReader, why: str, process: OpenProcess) -> npt.NDArray[np.int64]:
    """The objects at an address, of a type, or allocated by a function.

    Raises EbpfprofError if there is no such type or function.
    """
    if _ADDRESS.fullmatch(why):
        return reader.at(int(why, 16))
    slots = reader.of_type(why)
    if len(slots):
        return slots
    if process.binary().has_function(why):
        return reader.of_stack(why)
    names = reader.type_names()
    raise EbpfprofError(
        f"{printable(why)} is neither the type of a reachable object nor a function of process "
        f"{process.target.pid}.{similar(why, names)} --references --all shows the types."
    )
