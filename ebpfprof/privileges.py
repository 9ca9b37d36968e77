"""What the kernel lets this process do, asked before anything is attempted."""

import re
from pathlib import Path

from ebpfprof.errors import PermissionDenied

# include/uapi/linux/capability.h
_CAP_DAC_READ_SEARCH = 2
_CAP_SYS_PTRACE = 19
_CAP_SYS_ADMIN = 21
_CAP_PERFMON = 38
_CAP_BPF = 39

_NEEDED = {
    _CAP_BPF: "CAP_BPF",
    _CAP_PERFMON: "CAP_PERFMON",
    _CAP_SYS_PTRACE: "CAP_SYS_PTRACE",
    _CAP_DAC_READ_SEARCH: "CAP_DAC_READ_SEARCH",
}
_COVERED_BY_SYS_ADMIN = {_CAP_BPF, _CAP_PERFMON}


def effective_capabilities() -> set[int]:
    """Numbers of the capabilities in force for this process."""
    status = Path("/proc/self/status").read_text()
    match = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    mask = int(match[1], 16) if match else 0
    return {bit for bit in range(64) if mask >> bit & 1}


def require_capabilities(command: str) -> None:
    """Raise PermissionDenied, naming what is missing and what to type, unless all is there.

    `command` is what the user typed, without sudo.
    """
    held = effective_capabilities()
    if _CAP_SYS_ADMIN in held:
        held |= _COVERED_BY_SYS_ADMIN
    missing = [name for capability, name in _NEEDED.items() if capability not in held]
    if missing:
        raise PermissionDenied(
            f"Probes need rights that this user lacks: {', '.join(missing)}. Type: sudo {command}"
        )
