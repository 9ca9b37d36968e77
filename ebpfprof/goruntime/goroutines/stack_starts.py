"""Where the stack of a goroutine begins: by what it does, and by the version of Go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ebpfprof.goruntime.goroutines.states import RUNNING, SCAN, SYSCALL
from symbolizer.errors import SymbolizerError

if TYPE_CHECKING:
    import numpy.typing as npt

    from symbolizer import GoBinary

_END: Final = "runtime.goexit"


class StackStarts:
    """Finds where stacks begin, of the goroutines of one target."""

    def __init__(self, binary: GoBinary, bias: int, *, as_tracebacks: bool = False) -> None:
        """`bias` is runtime address minus linked address.

        With `as_tracebacks`, a goroutine that wants to continue after a system call is still in it,
        as in Go's own tracebacks (runtime/traceback.go, unwinder.initAt).
        """
        self._binary, self._bias, self._as_tracebacks = binary, bias, as_tracebacks
        self._deltas: dict[int, int] = {}
        self._known_ends: list[int] | None = None

    def of(
        self, records: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        """Where each stack begins: pc, sp and frame pointer; 0 for goroutines that run.

        `records` are those of fields.g_record. The order in which the runtime writes them is in
        runtime/proc.go (save, reentersyscall, gogo), Go 1.19 to 1.27.
        """
        status = records["status"] & ~np.uint32(SCAN)
        pcs, sps, bps = (records[name].copy() for name in ("pc", "sp", "bp"))
        in_syscall = (status == SYSCALL) | self._as_tracebacks
        in_syscall &= records["syscall_sp"] != 0
        if in_syscall.any():
            pcs[in_syscall] = records["syscall_pc"][in_syscall]
            sps[in_syscall] = records["syscall_sp"][in_syscall]
            if "syscall_bp" in (records.dtype.names or ()):
                bps[in_syscall] = records["syscall_bp"][in_syscall]
            else:
                for row in np.flatnonzero(in_syscall).tolist():
                    bps[row] = self.saved_bp(int(pcs[row]), int(sps[row]))
            # A thread that C made and that called Go before: its goroutine has no frames, and a
            # frame pointer of C (runtime/proc.go, oneNewExtraM).
            bps[in_syscall & np.isin(pcs, self._ends())] = 0
        runs = status == RUNNING
        if runs.any():
            for column in (pcs, sps, bps):
                column[runs] = 0
        return pcs, sps, bps

    def _ends(self) -> list[int]:
        """Where the outermost functions of goroutines return to (a list, as for any name)."""
        if self._known_ends is None:
            found = self._binary.functions_named(_END)
            self._known_ends = [function.entry + 1 + self._bias for function in found]
        return self._known_ends

    def saved_bp(self, pc: int, sp: int) -> int:
        """The address of the saved frame pointer of the function at `pc`; 0 if it has none.

        When a system call begins, Go 1.21 and 1.22 save no frame pointer. Go 1.19 saves one that
        may be of runtime.entersyscall, which has returned (runtime/proc.go, save).
        """
        delta = self._deltas.get(pc)
        if delta is None:
            try:
                delta = self._binary.sp_delta(pc - 1 - self._bias)
            except SymbolizerError:
                delta = -1
            self._deltas[pc] = delta
        return sp + delta - 8 if delta >= 8 else 0
