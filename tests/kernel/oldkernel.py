"""Run `ebpfprof` as on a kernel without links for probes (before Linux 6.6): by perf events.

python tests/kernel/oldkernel.py ARGUMENT...
"""

from __future__ import annotations

import sys
from pathlib import Path

from ebpfprof.__main__ import main
from ebpfprof.kernel import uprobe_links

COMMAND = (sys.executable, str(Path(__file__).resolve()))

if __name__ == "__main__":
    uprobe_links.is_offered = lambda: False  # type: ignore[assignment]  # as older kernels answer
    main()
