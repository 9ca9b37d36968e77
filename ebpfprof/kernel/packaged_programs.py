"""The compiled BPF programs of a release: with them, nothing is compiled where ebpfprof runs.

Packages have the folder `compiled` beside the C files, which tests/tools/compile_programs.py makes:
a file for each program and its options, named by a hash of all that it was compiled from, and the
SHA-256 of the files. So a changed C file is compiled. A checkout has no such folder.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from pathlib import Path
from typing import Any, Final

from ebpfprof.errors import AttachFailed
from ebpfprof.kernel import program_cache
from ebpfprof.kernel.program_source import Compiled, ProgramSource
from ebpfprof.kernel.sources import bpf_folder

CHECKSUMS: Final = "SHA256SUMS"
"""Lines as `sha256sum` writes and checks them."""
COMPILER: Final = "compiler.txt"
"""The versions of BCC and LLVM."""
_SUFFIX: Final = ".json.z"
_REINSTALL: Final = "Install ebpfprof again."


def folder() -> Path:
    """Where they are, if this is an installed package."""
    return bpf_folder() / "compiled"


def file_name(source: ProgramSource) -> str:
    """The name of the file with the compiled `source`."""
    stem = Path(source.name).name.partition(".")[0]
    return f"{stem}-{program_cache.key_of(source.parts())[:24]}{_SUFFIX}"


def encoded(made: dict[str, Any]) -> bytes:
    """The content of a file: what Compiled.of_json takes."""
    return zlib.compress(json.dumps(made, separators=(",", ":"), sort_keys=True).encode(), 9)


def checksums_of(files: dict[str, bytes]) -> str:
    """The content of the file CHECKSUMS for these files by name."""
    lines = [f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files)]
    return "".join(lines)


def find(source: ProgramSource) -> Compiled | None:
    """The compiled program, None if this is no package or the options are unusual.

    Raises AttachFailed if its file is damaged.
    """
    if not folder().is_dir():
        return None
    name = file_name(source)
    expected = checksums().get(name)
    if expected is None:
        return None
    data = _data(name, expected)
    try:
        return Compiled.of_json(json.loads(zlib.decompress(data)))
    except (zlib.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise AttachFailed(
            f"{folder() / name} has no BPF program: {error}. {_REINSTALL}"
        ) from error


def checksums() -> dict[str, str]:
    """The SHA-256 of each file by its name; empty if this is no package."""
    try:
        lines = (folder() / CHECKSUMS).read_text().splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise AttachFailed(
            f"{folder() / CHECKSUMS} can't be read: {error}. {_REINSTALL}"
        ) from error
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def compiler() -> str:
    """With what they were compiled, in words; "" if that is not known."""
    try:
        return (folder() / COMPILER).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def check() -> int:
    """Compare all files with their checksums; returns how many there are. Raises AttachFailed."""
    expected = checksums()
    for name, digest in expected.items():
        _data(name, digest)
    return len(expected)


def _data(name: str, expected: str) -> bytes:
    path = folder() / name
    try:
        data = path.read_bytes()
    except OSError as error:
        raise AttachFailed(f"{path} can't be read: {error.strerror}. {_REINSTALL}") from error
    if hashlib.sha256(data).hexdigest() != expected:
        raise AttachFailed(f"{path} is not the file that was installed. {_REINSTALL}")
    return data
