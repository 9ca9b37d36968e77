"""Block events: probes where goroutines park and wake, sums by stack out of the maps."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from ebpfprof.gotarget import GoTarget
from ebpfprof.loader import Program
from ebpfprof.losses import Loss, losses

_MAX_WAITS = 1 << 18
_MAX_STACKS = 1 << 14
_MAX_DEPTH = 136  # more than Go's 128 logical frames and those that it drops at the leaf
_COUNT_SHIFT = 16
_PARKED_SITES_PER_TARGET = 64


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

    def __init__(self, targets: int) -> None:
        """Compile and load for up to so many targets. Raises what Program raises."""
        self._sites = 0
        self._program = Program(
            "block.bpf.c",
            {
                "MAX_TARGETS": targets,
                "MAX_SITES": targets * _PARKED_SITES_PER_TARGET,
                "MAX_WAITS": _MAX_WAITS,
                "MAX_STACKS": _MAX_STACKS,
                "MAX_DEPTH": _MAX_DEPTH,
                "COUNT_SHIFT": _COUNT_SHIFT,
            },
        )

    def attach(self, index: int, go: GoTarget, *, rate_ns: int) -> None:
        """Put the probes into a target, which becomes number `index`.

        `rate_ns` is Go's block profile rate: waits that long and longer are all taken.
        Raises AttachFailed.
        """
        layout = go.binary.layout
        self._program.set_element(
            "targets",
            index,
            {
                "block_rate_ns": rate_ns,
                "sched_bp_offset": layout.offset("g", "sched.bp"),
                "status_offset": layout.offset("g", "atomicstatus"),
                "callback": _callback_fields(go),
            },
        )
        # The wake's probe goes first: a wait whose wake was missed would be timed to the
        # next wake in the same place, a wake without a wait is nothing.
        self._probe(index, go, "on_wake", go.wake_pc, return_pc=0)
        for park in go.parks:
            self._probe(
                index, go, "on_wait", park.start_pc, return_pc=park.return_pc + go.load_bias
            )

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

    def _probe(self, index: int, go: GoTarget, function: str, pc: int, *, return_pc: int) -> None:
        site, self._sites = self._sites, self._sites + 1
        self._program.set_element("sites", site, {"return_pc": return_pc, "target": index})
        self._program.attach_uprobe(
            function, go.target.exe_path, go.file_offset(pc), go.target.pid, cookie=site
        )


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
