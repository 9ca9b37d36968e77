"""A guest under plain QEMU: its disks, its start, and the lines of its report.

The guest has no network and no systemd. It gets three disks: Debian with all packages, the kernel's
modules, and the payload (checkout, built programs, the command). All writes go to scratch files.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from vagrant.debian import KernelFiles, make_image, run

HERE: Final = Path(__file__).parent
# The modules for the disks; a kernel may have some of them built in.
_MODULES: Final = ("virtio_pci", "virtio_blk")
_PAYLOAD_FREE_BYTES: Final = 2 << 30
_BOOT_DEADLINE_S: Final = 300.0
_TRIAL_DEADLINE_S: Final = 60.0
_BOOTS: Final = 3
_POLL_S: Final = 0.1

Report = Mapping[str, Any]


class MachineError(Exception):
    """The guest did not start, or stopped before its command ended; names its console's file."""


@dataclass(frozen=True)
class Disks:
    """The images from which a guest starts; it writes to none of them."""

    root: Path
    modules: Path
    payload: Path

    def __iter__(self) -> Iterator[Path]:
        return iter((self.root, self.modules, self.payload))


@dataclass(frozen=True)
class Machine:
    """How guests run: QEMU's accelerator ("kvm" or "tcg"), processors, memory."""

    accelerator: str
    cpus: int = 1
    memory_mib: int = 3072

    @property
    def name(self) -> str:
        """Its name in the table."""
        kind = {"kvm": "KVM", "tcg": "software emulation"}[self.accelerator]
        return f"QEMU, {kind}, {self.cpus} CPU{'s' if self.cpus > 1 else ''}"

    def command(
        self, kernel: KernelFiles, initrd: Path, ports: Sequence[Path], disks: Sequence[Path]
    ) -> list[str]:
        """QEMU's command line; `ports` are files for the output of the guest's serial ports."""
        # The oldest one with the instructions that Go's assembly uses (PCLMULQDQ).
        cpu = "host" if self.accelerator == "kvm" else "Westmere"
        words = ["qemu-system-x86_64", "-M", "q35", "-accel", self.accelerator, "-cpu", cpu]
        words += ["-smp", str(self.cpus), "-m", str(self.memory_mib), "-nodefaults"]
        words += ["-display", "none", "-no-reboot"]
        words += ["-kernel", str(kernel.image), "-initrd", str(initrd)]
        words += ["-append", "console=ttyS0 quiet panic=-1 mitigations=off"]
        for port in ports:
            words += ["-serial", f"file:{port}"]
        for disk in disks:
            words += ["-drive", f"file={disk},format=raw,if=virtio,snapshot=on"]
        return words


def kvm_works(kernel: KernelFiles, initrd: Path) -> bool:
    """Whether a guest really boots with KVM: a /dev/kvm that opens is no proof."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    with tempfile.TemporaryDirectory() as scratch:
        console = Path(scratch) / "console"
        # Without disks the initrd says that it found none, and switches the guest off.
        command = Machine("kvm", memory_mib=512).command(kernel, initrd, [console], [])
        try:
            done = subprocess.run(command, capture_output=True, timeout=_TRIAL_DEADLINE_S)
        except (subprocess.TimeoutExpired, FileNotFoundError):
            return False
        return done.returncode == 0 and b"initrd: no disk" in console.read_bytes()


def make_initrd(kernel: KernelFiles, place: Path) -> Path:
    """Pack busybox, initrd.sh and the modules that this kernel needs for its disks."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        for folder in ("bin", "dev", "proc", "root", "modules"):
            (root / folder).mkdir()
        shutil.copy("/bin/busybox", root / "bin" / "busybox")
        shutil.copy(HERE / "initrd.sh", root / "init")
        for index, module in enumerate(_needed(kernel.modules)):
            shutil.copy(module, root / "modules" / f"{index:02}-{module.name}")
        packing = "find . | cpio --quiet -o -H newc"
        run(["bash", "-c", f"cd {shlex.quote(str(root))} && {packing} >{shlex.quote(str(place))}"])
    return place


def make_modules(kernel: KernelFiles, place: Path) -> Path:
    """Make a file system for /lib/modules, unless it is in the cache."""
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        size_bytes = sum(p.stat().st_size for p in kernel.modules.rglob("*") if p.is_file())
        fresh = place.with_suffix(".new")
        make_image(fresh, kernel.modules.parent, 2 * size_bytes + (64 << 20))
        fresh.rename(place)
    return place


def make_payload(
    place: Path, checkout: Path, cache: Path, built: Sequence[Path], command: str
) -> Path:
    """Make an image of the checkout, the toolchains, `built` out of `cache`, and `command`.

    It copies small files only: the rest is mounted together, in a mount namespace of its own, and
    goes straight into the image.
    """
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        files = run(["git", "-C", checkout, "ls-files", "-co", "--exclude-standard", "-z"])
        for name in filter(None, files.split("\0")):
            source, target = checkout / name, root / "checkout" / name
            if source.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)
        lent = {checkout / ".venv": root / "checkout" / ".venv"}
        for path in (cache / "go", cache / "foreign", cache / "pgo", *built):
            lent[path] = root / "cache" / path.relative_to(cache)
        places = {"CHECKOUT": checkout, "CACHE": cache}
        (root / "places").write_text(
            "".join(f"{name}={shlex.quote(str(path))}\n" for name, path in places.items())
        )
        shutil.copy(HERE / "guest.sh", root / "guest.sh")
        (root / "command").write_text(f"#!/usr/bin/env bash\n{command}\n")
        (root / "command").chmod(0o755)
        lines = ["set -eu", "mount --make-rprivate /"]
        for source, target in lent.items():
            if source.exists():
                target.mkdir(parents=True, exist_ok=True)
                lines.append(f"mount --bind {shlex.quote(str(source))} {shlex.quote(str(target))}")
        size = f"$(( $(du -sm {shlex.quote(str(root))} | cut -f1) * 3 / 2 "
        size += f"+ {_PAYLOAD_FREE_BYTES >> 20} ))M"
        fresh = shlex.quote(str(place.with_suffix(".new")))
        lines += [
            f"rm -f {fresh}",
            f"mke2fs -q -t ext4 -O ^has_journal -m 0 -d {shlex.quote(str(root))} {fresh} {size}",
        ]
        run(["unshare", "--mount", "bash", "-c", "\n".join(lines)])
    place.with_suffix(".new").rename(place)
    return place


def boot(
    machine: Machine,
    kernel: KernelFiles,
    initrd: Path,
    disks: Disks,
    folder: Path,
    *,
    quiet_s: float,
    seen: Callable[[Report], None],
) -> int:
    """Boot, hand each line of the guest's report to `seen`; returns its command's exit status.

    If the guest does not report its boot, it is started again, _BOOTS times at most. If it reports
    nothing for `quiet_s` seconds after its boot, it is killed. Raises MachineError.
    """
    console, port = folder / "console", folder / "report"
    for _ in range(_BOOTS):
        for path in (console, port):
            path.write_bytes(b"")
        command = machine.command(kernel, initrd, [console, port], [*disks])
        with _running(["nice", "-n", "10", *command]) as qemu:
            booted = False
            for report in _lines(port, qemu, _BOOT_DEADLINE_S, quiet_s):
                booted = True
                seen(report)
                if "ended" in report:
                    return int(report["ended"])
            if booted:
                raise MachineError(
                    f"Linux {kernel.release} stopped too early, or reported nothing for "
                    f"{quiet_s:.0f} s. Its console: {console}"
                )
    raise MachineError(f"Linux {kernel.release} did not boot. Its console: {console}")


@contextmanager
def _running(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    qemu = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        yield qemu
    finally:
        qemu.kill()
        qemu.wait()


def _lines(
    port: Path, qemu: subprocess.Popen[bytes], first_s: float, quiet_s: float
) -> Iterator[Report]:
    """Yield lines as they come, until QEMU ends, or none comes for too long."""
    until = time.monotonic() + first_s
    rest = b""
    with port.open("rb") as file:
        while True:
            ended = qemu.poll() is not None
            *lines, rest = (rest + file.read()).split(b"\n")
            for line in lines:
                until = time.monotonic() + quiet_s
                try:
                    yield json.loads(line)
                except ValueError:
                    continue  # the guest's kernel wrote into this line
            if ended or time.monotonic() > until:
                return
            time.sleep(_POLL_S)


def _needed(modules: Path) -> list[Path]:
    """Files of _MODULES and of the modules that they need, in the order of loading."""
    needs: dict[str, list[str]] = {}
    for line in (modules / "modules.dep").read_text().splitlines():
        name, _, others = line.partition(":")
        needs[name] = others.split()
    found: list[str] = []

    def take(name: str) -> None:
        if name not in found:
            for other in needs[name]:
                take(other)
            found.append(name)

    for module in _MODULES:
        for name in needs:
            if Path(name).stem == module:
                take(name)
    return [modules / name for name in found]
