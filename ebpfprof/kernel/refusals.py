"""What a refusal of the kernel means to the user, as an exception that says what to do."""

from __future__ import annotations

import errno
from typing import Final

from ebpfprof.errors import AttachFailed, KernelUnsupported, PermissionDenied, to_type
from ebpfprof.privileges.checks import way_out

NOT_ALLOWED: Final = (errno.EPERM, errno.EACCES)
"""The errnos that say that a right is missing."""


def attach_refused(request: str, error: OSError) -> AttachFailed | PermissionDenied:
    """The kernel refused `request`, such as "a probe at offset 0x10", to this recording."""
    text = _text(request, error)
    if error.errno in NOT_ALLOWED:
        return PermissionDenied(f"{text} {way_out()}")
    return AttachFailed(f"{text} The kernel's log may have more:{to_type('dmesg')}")


def not_offered(
    request: str,
    error: OSError,
    remedy: str = "Linux 5.15 or newer with CONFIG_BPF_SYSCALL is needed.",
) -> KernelUnsupported | PermissionDenied:
    """The kernel refused `request`, such as "BPF programs", which every recording needs."""
    text = _text(request, error)
    if error.errno in NOT_ALLOWED:
        return PermissionDenied(f"{text} {way_out()}")
    return KernelUnsupported(f"{text} {remedy}")


def _text(request: str, error: OSError) -> str:
    return f"The kernel refused {request}: {error.strerror} (errno {error.errno})."
