"""Go's own test suites as targets: programs that nobody here wrote."""

from __future__ import annotations

from pathlib import Path

from tests.toolchains import cache_dir, locked, run, toolchain

ARGUMENTS = ("-test.short", "-test.parallel=1", "-test.cpu=1", "-test.timeout=120s")


def suite(package: str, minor: str) -> tuple[Path, Path]:
    """The built tests of a package of the standard library, and the folder to run them in.

    Raises ToolchainError.
    """
    go = toolchain(minor)
    folder = go.goroot / "src" / package
    name = f"{package.replace('/', '-')}-{go.version}.test"
    program = cache_dir() / "suites" / name
    program.parent.mkdir(parents=True, exist_ok=True)
    with locked(program.with_suffix(".lock")):
        if not program.exists():
            part = program.with_suffix(".part")
            command = (go.goroot / "bin" / "go", "test", "-c", "-vet=off", "-o", part, package)
            run(command, cwd=folder, env=go.environment())
            part.rename(program)
    return program, folder
