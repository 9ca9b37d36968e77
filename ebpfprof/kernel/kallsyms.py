"""Names of the kernel's functions, from /proc/kallsyms.

numpy is imported when it is needed: that takes as long as it takes BCC to start.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from ebpfprof.errors import to_type
from ebpfprof.privileges.checks import effective_capabilities, way_out

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

SHARED_S = 60.0
_CAP_SYSLOG = 34  # include/uapi/linux/capability.h

_FILE = Path("/proc/kallsyms")
_KPTR_RESTRICT = Path("/proc/sys/kernel/kptr_restrict")

# A line is "ffffffff81000000 T name", and "\t[module]" behind it; kernel/kallsyms.c, s_show().
_DIGITS = 16
_TYPE_AT = 17
_NAME_AT = 19
_LINE_END = ord("\n")

# Text, best first: of several names for one address, the global one is known best.
_TEXT = b"TtWw"

# kallsyms has no sizes. No function is longer; the code behind it belongs to none that we know.
_MAX_FUNCTION_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class KernelSymbol:
    """A function of the kernel; `module` is "" in the kernel proper, and bpf for BPF programs."""

    name: str
    module: str
    start: int


class KernelSymbols:
    """All functions of the running kernel, its modules and its BPF programs at this moment."""

    _last: ClassVar[tuple[float, KernelSymbols] | None] = None

    def __init__(self, text: bytes, hidden_text: str = "") -> None:
        """From the bytes of /proc/kallsyms; `hidden_text` says why there are no addresses."""
        self._text = text
        self._addresses, self._lines = _index(text)
        self.hidden = not self._addresses.any()
        self.hidden_text = (hidden_text or why_hidden()) if self.hidden else ""

    @classmethod
    def read(cls, file: Path = _FILE) -> Self:
        """The symbols of the running kernel. Never fails: see `hidden` and `hidden_text`."""
        try:
            return cls(file.read_bytes())
        except OSError as error:
            return cls(
                b"",
                f"Functions of the kernel have no names: {file} can't be read "
                f"({error.strerror}). Use a kernel built with CONFIG_KALLSYMS, and mount /proc.",
            )

    @classmethod
    def shared(cls) -> KernelSymbols:
        """As read(), the same object for all calls within a minute: 8 MB, and 0.1 s to read.

        Callers must not keep it, or there will be several.
        """
        now_s = time.monotonic()
        if cls._last is None or now_s >= cls._last[0] + SHARED_S:
            cls._last = now_s, cls.read()
        return cls._last[1]

    def at(self, address: int) -> KernelSymbol | None:
        """The function that `address` lies in; None if there is none, or names are hidden."""
        if self.hidden or not 0 <= address < 1 << 64:
            return None
        addresses = self._addresses
        end = int(addresses.searchsorted(addresses.dtype.type(address), side="right"))
        if end == 0:
            return None
        start = int(addresses[end - 1])
        first = int(addresses.searchsorted(addresses[end - 1], side="left"))
        lines = [int(line) for line in self._lines[first:end]]
        texts = [line for line in lines if self._text[line + _TYPE_AT] in _TEXT]
        if not texts or address - start >= _MAX_FUNCTION_BYTES:
            return None
        best = min(texts, key=self._rank)
        name, _, module = self._text[best + _NAME_AT : self._end(best)].partition(b"\t")
        return KernelSymbol(_decoded(name), _decoded(module.strip(b"[]")), start)

    def _rank(self, line: int) -> tuple[int, int]:
        """The rank of a line's name among those for one address; the least is the best."""
        name = self._text[line + _NAME_AT : self._end(line)]
        return _TEXT.index(self._text[line + _TYPE_AT]), len(name) - len(name.lstrip(b"_"))

    def _end(self, line: int) -> int:
        return self._text.index(b"\n", line)


def _index(text: bytes) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
    """Addresses of all symbols, ascending, and where their lines begin in `text`."""
    import numpy as np

    chars = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(chars == _LINE_END)
    starts = np.concatenate([np.zeros(1, np.intp), ends + 1])[:-1]
    starts = starts[ends - starts > _NAME_AT]
    addresses = np.zeros(len(starts), np.uint64)
    for column in range(_DIGITS):  # all at once would take 30 MB
        digits = chars[starts + column]
        addresses <<= np.uint64(4)
        addresses |= (digits & 0xF) + 9 * (digits >> 6)  # letters have the bit 0x40
    order = np.argsort(addresses, kind="stable")
    return addresses[order], starts[order].astype(np.uint32)


def _decoded(name: bytes) -> str:
    return name.decode("ascii", "replace")


def why_hidden(
    kptr_restrict: Path = _KPTR_RESTRICT, capabilities: Collection[int] | None = None
) -> str:
    """Sentences on why the kernel hides addresses, and what to do.

    `capabilities` are the effective ones, by default our own.
    """
    what = "Functions of the kernel have no names: the kernel hides their addresses"
    try:
        restrict = int(kptr_restrict.read_text())
    except (OSError, ValueError):
        restrict = 0
    if restrict > 1:
        return f"{what} (kernel.kptr_restrict is {restrict}). Type:" + to_type(
            "sudo sysctl kernel.kptr_restrict=1"
        )
    if _CAP_SYSLOG not in (effective_capabilities() if capabilities is None else capabilities):
        return f"{what} (CAP_SYSLOG is missing). {way_out()}"
    return f"{what}. Type:{to_type('sudo sysctl kernel.kptr_restrict=0')}"
