"""Block events: probes where goroutines park and wake, sums by stack out of the maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from ebpfprof.loader import Program
from ebpfprof.losses import Loss, losses

if TYPE_CHECKING:  # the session imports them while BCC compiles
    from ebpfprof.gotarget import GoTarget
    from symbolizer import RuntimeLayout

_MAX_WAITS = 1 << 18
_MAX_STACKS = 1 << 14
_MAX_DEPTH = 136  # more than Go's 128 logical frames and those that it drops at the leaf
_COUNT_SHIFT = 16
_SITES_PER_TARGET = 64

# The runtime.waitReason of the operations that Go's block profiler hooks (runtime/chan.go,
# select.go, sema.go). The runtime's own semaphores share the first; their stacks tell.
_WAIT_REASONS = (
    "Semacquire",
    "ChanReceive",
    "ChanSend",
    "Select",
    "SyncCondWait",
    "SyncMutexLock",
    "SyncRWMutexRLock",
    "SyncRWMutexLock",
    "SyncWaitGroupWait",
    "SynctestChanReceive",
    "SynctestChanSend",
    "SynctestSelect",
    "SynctestWaitGroupWait",
)


@dataclass(frozen=True, slots=True)
class StackTotal:
    """What one stack of one target has waited: return addresses, innermost first.

    `count` is not whole under sampling: a short wait then stands for several.
    """

    return_pcs: tuple[int, ...]
    count: float
    delay_ns: int


class BlockCollector:
    """The block program, loaded once, with the probes of any number of targets."""

    def __init__(self, targets: int, *, rate_ns: int) -> None:
        """Compile and load for up to so many targets. Raises what Program raises.

        `rate_ns` is Go's block profile rate: waits that long and longer are all taken, of
        shorter ones as many as their length bears to it; 1 takes every wait.
        """
        self._sites = 0
        self._program = Program(
            "block.bpf.c",
            {
                "BLOCK_RATE_NS": f"{rate_ns}ULL",
                "MAX_TARGETS": targets,
                "MAX_SITES": targets * _SITES_PER_TARGET,
                "MAX_WAITS": _MAX_WAITS,
                "MAX_STACKS": _MAX_STACKS,
                "MAX_DEPTH": _MAX_DEPTH,
                "COUNT_SHIFT": _COUNT_SHIFT,
            },
            functions=("on_wait", "on_wake"),
        )

    def attach(self, index: int, go: GoTarget) -> None:
        """Put the probes into a target, which becomes number `index`, and begin to record it.

        Raises AttachFailed.
        """
        self._describe(index, go, active=False)
        self._probe(index, go, "on_wake", go.sites.wake_pc, return_pc=0)
        for park in go.sites.parks:
            self._probe(
                index, go, "on_wait", park.start_pc, return_pc=park.return_pc + go.load_bias
            )
        self._describe(index, go, active=True)

    def detach(self) -> None:
        """Remove all probes; the sums stay readable."""
        self._program.detach()

    def snapshot(self) -> dict[int, list[StackTotal]]:
        """The sums since the start, by target. Never decreasing from one call to the next."""
        hashes, stacks = self._program.read_hash("stacks")
        by_hash = dict(zip(hashes.tolist(), range(len(hashes)), strict=True))
        found: dict[int, list[StackTotal]] = {}
        for key, total in zip(*self._program.read_hash("totals"), strict=True):
            row = by_hash.get(int(key))
            if row is None or not stacks[row]["depth"] or not total["count"]:
                continue  # being written this moment: the next snapshot has it
            stack = stacks[row]
            found.setdefault(int(stack["target"]), []).append(
                StackTotal(
                    tuple(stack["pcs"][: stack["depth"]].tolist()),
                    int(total["count"]) / (1 << _COUNT_SHIFT),
                    int(total["delay_ns"]),
                )
            )
        return found

    def losses(self) -> Sequence[Loss]:
        """What was lost so far, all targets together."""
        return losses(self._program.read_array("losses"))

    def close(self) -> None:
        """Remove the probes and free the maps."""
        self._program.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _describe(self, index: int, go: GoTarget, *, active: bool) -> None:
        layout = go.binary.layout
        self._program.set_element(
            "targets",
            index,
            {
                "active": int(active),
                "sched_bp_offset": layout.offset("g", "sched.bp"),
                "status_offset": layout.offset("g", "atomicstatus"),
                "wait_reason_offset": layout.offset("g", "waitreason"),
                "wait_reasons": _wait_reasons(layout),
                "callback": _callback_fields(go),
            },
        )

    def _probe(self, index: int, go: GoTarget, function: str, pc: int, *, return_pc: int) -> None:
        site, self._sites = self._sites, self._sites + 1
        self._program.set_element("sites", site, {"return_pc": return_pc, "target": index})
        self._program.attach_uprobe(
            function, go.target.exe_path, go.file_offset(pc), go.target.pid, cookie=site
        )


def _wait_reasons(layout: RuntimeLayout) -> int:
    """A bit for each wait reason of a hooked operation that this version of Go has."""
    known = layout.wait_reasons
    return sum(1 << known[name] for name in _WAIT_REASONS if name in known)


def _callback_fields(go: GoTarget) -> dict[str, int]:
    callback = go.callback
    if callback is None:
        return {}
    return {
        "return_pc": callback.return_pc + go.load_bias,
        "switch_pc": callback.switch_pc + go.load_bias,
        "switch_offset": callback.switch_offset,
        "caller_offset": callback.caller_offset,
        "frame_offset": callback.frame_offset,
    }
