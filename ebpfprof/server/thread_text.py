"""A profile of threads as the text that net/http/pprof answers with ?debug=1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ebpfprof.export.go_quotes import quoted
from ebpfprof.server.pprof_text import aligned, frame_rows
from symbolizer import SymbolizerError

if TYPE_CHECKING:
    from ebpfprof.profile.model import Profile, Sample
    from symbolizer import GoBinary

_NO_STACK: Final = 32
"""How many zeros Go 1.23 and later have for a thread without a stack (runtime/mprof.go)."""


def text(profile: Profile, binary: GoBinary, load_bias: int) -> str:
    """The counts by stack (runtime/pprof/pprof.go, printCountProfile), the most frequent first."""

    def offset_of(address: int) -> int | None:
        try:
            function = binary.function_at(address - load_bias)
        except SymbolizerError:
            return None
        return address - load_bias - function.entry if function else None

    zeros = "" if binary.layout.profile_stacks.unwinds_by_tables else " 0x0" * _NO_STACK
    lists = binary.layout.tracebacks.shortened_type_arguments
    lines = [f"{profile.kind} profile: total {sum(sample.values[0] for sample in profile.samples)}"]
    for group in sorted(profile.samples, key=lambda sample: -sample.values[0]):
        pcs = "".join(f" {location.address + 1:#x}" for location in group.locations) or zeros
        lines += [f"{group.values[0]} @{pcs}", *_labels(group)]
        lines += [*aligned(frame_rows(group, offset_of, lists) or [["#", "0x0"]]), ""]
    return "\n".join(lines) + "\n"


def _labels(sample: Sample) -> list[str]:
    labels = [
        f"{quoted(label.key.encode())}:{quoted(str(label.value).encode())}"
        for label in sample.labels
    ]
    return [f"# labels: {{{', '.join(labels)}}}"] if labels else []
