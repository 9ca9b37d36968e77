"""Whether the kernel gives us namespaces of our own: not in a chroot."""

from __future__ import annotations

import subprocess
from typing import Final

import pytest


def can_be_had() -> bool:
    """Try it. In a chroot the kernel refuses.

    It makes no user namespace there (create_user_ns, kernel/user_namespace.c), and a root folder
    that is no mount can't be kept from passing on what is mounted below.
    """
    command = ["/usr/bin/unshare", "--user", "--map-root-user", "--mount", "/bin/true"]
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


NEEDS_NAMESPACES: Final = pytest.mark.skipif(
    not can_be_had(), reason="the kernel makes no namespaces here: is this a chroot?"
)
