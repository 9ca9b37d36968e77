"""Debian's kernels and root file systems, fetched without touching the host's own packages.

Point versions of kernels rotate out of the archive, so a kernel has the name of its suite and its
metapackage, and we look up the current version.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.toolchains import cache_dir

MIRROR: Final = "http://deb.debian.org/debian"
SECURITY_MIRROR: Final = "http://deb.debian.org/debian-security"
CACHE_IN_GUEST: Final = Path("/root/.cache/ebpfprof")
KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SUITE: Final = "bookworm"

# From kernel 7 on, an image comes in pieces.
_PIECES: Final = re.compile(r"linux-(image|binary|modules|base)-[0-9].*")
_ROOT_PACKAGES: Final = (
    "kmod",
    "iproute2",
    "procps",
    "python3",
    "busybox-static",
    "ca-certificates",
)


class DebianError(Exception):
    """A package or a file system is not available; the message carries the command's output."""


@dataclass(frozen=True)
class KernelFiles:
    """A kernel, unpacked: its full release, its image, and the folder of its modules."""

    release: str
    image: Path
    modules: Path


def run(command: Sequence[str | Path], env: dict[str, str] | None = None) -> str:
    """Standard output of a command. Raises DebianError with all it printed if it fails."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            errors="replace",
        )
    except FileNotFoundError as error:
        raise DebianError(f"There is no {words[0]}: run `vagrant/setup.sh`.") from error
    if done.returncode != 0:
        said = (done.stdout + done.stderr)[-4000:]
        raise DebianError(f"`{' '.join(words)}` failed ({done.returncode}):\n{said}")
    return done.stdout


def kernel(cache: Path, suite: str, package: str) -> KernelFiles:
    """The current kernel of the metapackage `package` of `suite`; from the cache if it is there.

    Without a network, the newest one in the cache. Raises DebianError.
    """
    folder = cache / "kernels" / suite
    try:
        names = _pieces_of(cache / "apt" / suite, suite, package)
    except DebianError:
        fetched = sorted(folder.glob("*/complete"), key=lambda path: path.stat().st_mtime)
        if not fetched:
            raise
        return _unpacked(fetched[-1].parent)
    chosen = folder / hashlib.sha256(" ".join(names).encode()).hexdigest()[:16]
    if not (chosen / "complete").exists():
        shutil.rmtree(chosen, ignore_errors=True)
        chosen.mkdir(parents=True)
        _download(cache / "apt" / suite, names, chosen / "root")
        (chosen / "complete").touch()
    return _unpacked(chosen)


def root_file_system(cache: Path, checkout: Path, provision: Path) -> Path:
    """An ext4 image of a Debian 12 on which `provision` has run; from the cache if it is there.

    The script finds the checkout and its programs mounted, not copied, so it installs packages
    only. Raises DebianError.
    """
    digest = hashlib.sha256(f"{SUITE} {_ROOT_PACKAGES} {checkout}".encode())
    for script in (provision, checkout / "tests" / "setup.sh"):
        digest.update(script.read_bytes())
    image = cache / "root" / f"{digest.hexdigest()[:16]}.ext4"
    if image.exists():
        return image
    image.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=image.parent, prefix=".root-") as scratch:
        root = Path(scratch) / "root"
        make_root(root, _ROOT_PACKAGES)
        lent = {checkout: checkout, cache_dir(): CACHE_IN_GUEST}
        provision_root(root, checkout, provision, lent)
        fresh = image.with_suffix(".new")
        make_image(fresh, root, 2 * disk_usage_bytes(root) + (4 << 30))
    fresh.rename(image)
    return image


def make_root(root: Path, packages: Sequence[str]) -> None:
    """Make a small Debian 12 with these packages in a new folder."""
    command = ["mmdebstrap", "--variant=minbase", f"--include={','.join(packages)}"]
    command.append("--dpkgopt=force-unsafe-io")  # after a failure, we start over
    sources = [f"deb {MIRROR} {SUITE} main", f"deb {SECURITY_MIRROR} {SUITE}-security main"]
    run([*command, "--quiet", SUITE, root, *sources])


def make_image(image: Path, folder: Path, size_bytes: int, offset_bytes: int = 0) -> None:
    """Make an ext4 file system with the content of `folder`, in a file with holes."""
    image.unlink(missing_ok=True)
    command = ["mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-m", "0"]
    command += ["-E", f"offset={offset_bytes}", "-d", str(folder)]
    run([*command, image, f"{size_bytes >> 20}M"])


def disk_usage_bytes(folder: Path) -> int:
    """The disk space of the files in a folder."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))


def provision_root(root: Path, checkout: Path, script: Path, lent: Mapping[Path, Path]) -> None:
    """Run provision.sh for a checkout; both paths as they are in `root`.

    `lent` has folders of the host and the paths where the script finds them.
    """
    # In a mount namespace of its own: the lent folders are unmounted with it, and no later removal
    # of `root` can reach them.
    lines = ["set -eu", "mount --make-rprivate /"]
    for source, place in lent.items():
        lines.append(f"mkdir -p '{root}{place}'; mount --rbind '{source}' '{root}{place}'")
    lines += [
        f"mount -t proc proc '{root}/proc'",
        f"cp /etc/resolv.conf '{root}/etc/resolv.conf'",
        f"exec chroot '{root}' env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin "
        f"'{script}' '{checkout}'",
    ]
    run(["unshare", "--mount", "--pid", "--fork", "bash", "-c", "\n".join(lines)])
    run(["chroot", root, "apt-get", "clean"])


def _pieces_of(apt: Path, suite: str, package: str) -> list[str]:
    """NAME=VERSION of all packages that make up the kernel, after `apt-get update`."""
    env = _apt(apt, suite)
    run(["apt-get", "-q", "update", "-o", "APT::Update::Error-Mode=any"], env)
    names = ["install", "--simulate", "--no-install-recommends", package]
    planned = run(["apt-get", "-q", *names], env)
    found = re.findall(r"^Inst (\S+) \((\S+)", planned, flags=re.M)
    pieces = sorted(f"{name}={version}" for name, version in found if _PIECES.fullmatch(name))
    if not pieces:
        raise DebianError(f"{package} of {suite} needs no kernel image:\n{planned}")
    return pieces


def _apt(folder: Path, suite: str) -> dict[str, str]:
    """Environment for apt commands that use this suite only, and nothing of the host."""
    for part in ("state", "lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    mirror = SECURITY_MIRROR if suite.endswith("-security") else MIRROR
    base = suite.removesuffix("-backports").removesuffix("-security")
    lines = [f"deb [signed-by={KEYRING}] {mirror} {suite} main"]
    if base != suite:
        lines.append(f"deb [signed-by={KEYRING}] {MIRROR} {base} main")
    (folder / "sources.list").write_text("\n".join(lines) + "\n")
    (folder / "preferences").write_text(f"Package: *\nPin: release n={suite}\nPin-Priority: 990\n")
    settings = {
        "Dir::State": folder / "state",
        "Dir::State::Lists": folder / "lists",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "Dir::Etc::SourceList": folder / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::Etc::Preferences": folder / "preferences",
        "Dir::Etc::PreferencesParts": "/dev/null",
        "Dir::Etc::Parts": "/dev/null",
        "APT::Architecture": "amd64",
        "Acquire::Languages": "none",
    }
    config = folder / "apt.conf"
    config.write_text("".join(f'{name} "{value}";\n' for name, value in settings.items()))
    return {"APT_CONFIG": str(config), "LC_ALL": "C"}


def _download(apt: Path, names: Iterable[str], root: Path) -> None:
    env = {"APT_CONFIG": str(apt / "apt.conf"), "LC_ALL": "C"}
    with tempfile.TemporaryDirectory(dir=apt) as scratch:
        words = " ".join(f"'{name}'" for name in names)
        run(["bash", "-c", f"cd '{scratch}' && apt-get -q download {words}"], env)
        for archive in sorted(Path(scratch).glob("*.deb")):
            run(["dpkg-deb", "-x", archive, root])
    # Every insmod loads uncompressed modules.
    for packed in list(root.rglob("*.ko.xz")):
        packed.with_suffix("").write_bytes(lzma.decompress(packed.read_bytes()))
        packed.unlink()


def _unpacked(folder: Path) -> KernelFiles:
    root = folder / "root"
    modules = next(
        path.parent for path in root.glob("**/lib/modules/*/modules.builtin") if path.is_file()
    )
    images = [*root.glob("boot/vmlinuz-*"), *modules.glob("vmlinuz")]
    run(["depmod", "-b", modules.parents[2], modules.name])
    return KernelFiles(modules.name, images[0], modules)
