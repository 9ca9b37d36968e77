"""Builds programs of others from the Go module proxy: ordinary modules, with checksums in go.sum.

python -m tests.backends.building    builds what CI needs, unless it is in the cache
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Final

from tests.toolchains import cache_dir, locked, toolchain

HERE: Final = Path(__file__).parent
MINOR: Final = "1.26"
COLLECTOR: Final = ("collector", ".")
PROFCHECK: Final = ("profcheck", "github.com/open-telemetry/sig-profiling/profcheck/cmd/profcheck")
PARCA: Final = ("parca", "github.com/parca-dev/parca/cmd/parca")
NETWORK: Final = {
    "GOPROXY": "https://proxy.golang.org",
    "GOFLAGS": "-mod=readonly",
    "GOSUMDB": "off",  # go.sum has the checksums
}


def built(which: tuple[str, str]) -> Path:
    """The program of a folder here and a package of it, from the cache if it can be.

    Raises ToolchainError if a module can't be fetched, is another one, or does not compile.
    """
    name, package = which
    return built_from(HERE / name, name, package)


def built_from(
    source: Path, name: str, package: str, *, tags: str = "", minor: str = MINOR
) -> Path:
    """The program `name`: a package that the module in `source` requires, from the cache if it can
    be.

    Raises ToolchainError as built() does.
    """
    go = toolchain(minor)
    digest = hashlib.sha256(f"{go.version}{tags}".encode())
    for path in sorted(path for path in source.iterdir() if path.is_file()):
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    program = cache_dir() / "backends" / f"{name}-{digest.hexdigest()[:16]}" / name
    with locked(cache_dir() / "backends" / f"{name}.lock"):
        if not program.exists():
            program.parent.mkdir(parents=True, exist_ok=True)
            fresh = program.with_suffix(".new")
            flags = ("-buildvcs=false", "-ldflags=-s -w", f"-tags={tags}", "-o", fresh)
            go.go("build", *flags, package, cwd=source, env=NETWORK)
            fresh.rename(program)
    return program


if __name__ == "__main__":
    os.nice(5)
    for each in (COLLECTOR, PROFCHECK):
        print(built(each))
    sys.exit(0)
