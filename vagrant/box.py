"""Makes a box for Vagrant's libvirt provider, for machines that can't reach the public ones.

vagrant/box

It is Debian 12 on which provision.sh has run already, for the checkout at its place in the guest,
so that the script finds nothing left to do when Vagrant runs it.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.toolchains import cache_dir
from vagrant import debian
from vagrant.debian import CACHE_IN_GUEST, run

CHECKOUT: Final = Path(__file__).resolve().parent.parent
# Where the Vagrantfile puts the checkout, below the root.
PLACE: Final = Path("src/ebpfprof")
_PACKAGES: Final = (
    "linux-image-cloud-amd64",
    "grub-pc-bin",
    "systemd-sysv",
    "dbus",
    "ifupdown",
    "isc-dhcp-client",
    "openssh-server",
    "sudo",
    "rsync",
    "ca-certificates",
)
# Its private key is public; Vagrant replaces it by a new one at the first `vagrant up`.
_INSECURE_KEY: Final = """\
ssh-rsa AAAAB3NzaC1yc2EAAAABIwAAAQEA6NF8iallvQVp22WDkTkyrtvp9eWW6A8YVr+kz4TjGYe7gHzIw+niNltGEFHzD8+\
v1I2YJ6oXevct1YeS0o9HZyN1Q9qgCgzUFtdOKLv6IedplqoPkcmF0aYet2PkEDo3MlTBckFXPITAMzF8dJSIFo9D8HfdOV0IAd\
x4O7PtixWKn5y2hMNG0zQPyUecp4pzC6kivAIhyfHilFR61RGL+GPXQ2MWZWFYbAGjyiYJnAmCP3NOTd0jMZEnDkbUvxhMmBYSd\
ETk1rRgm+R4LOzFUGaHqHDLKLX+FIPKcF96hrucXzcWyLbIbEgE98OHlnVYCzRdK8jlqm8tehUc9c9WhQ== vagrant
"""
_SECTOR_BYTES: Final = 512
# GRUB lies between the boot record and the partition.
_PARTITION_BYTES: Final = 1 << 20
_FREE_BYTES: Final = 6 << 30
_GRUB_MODULES: Final = ("biosdisk", "part_msdos", "ext2", "linux", "boot")


def make_box(place: Path) -> None:
    """Make the box and put it at `place`. Raises DebianError."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".box-") as scratch:
        root, disk, image = (Path(scratch) / name for name in ("root", "disk", "box.img"))
        debian.make_root(root, _PACKAGES)
        _trust_certificates(root)
        _copy_checkout(root / PLACE)
        for name in ("go", "foreign", "pgo"):
            if (cache_dir() / name).exists():
                copy = root / str(CACHE_IN_GUEST)[1:] / name
                copy.parent.mkdir(parents=True, exist_ok=True)
                run(["cp", "-a", cache_dir() / name, copy])
        debian.provision_root(root, "/" / PLACE, "/" / PLACE / "vagrant" / "provision.sh", {})
        _configure(root)
        loader = _boot_loader(root)
        size_bytes = (debian.disk_usage_bytes(root) + _FREE_BYTES) >> 20 << 20
        debian.make_image(disk, root, size_bytes, _PARTITION_BYTES)
        with disk.open("r+b") as file:
            file.write(boot_sectors(*loader, size_bytes))
            file.truncate(_PARTITION_BYTES + size_bytes)
        run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", disk, image])
        disk.unlink()
        (Path(scratch) / "metadata.json").write_text(metadata(_PARTITION_BYTES + size_bytes))
        fresh = place.with_suffix(".new")
        run(["tar", "-C", scratch, "-cf", fresh, "metadata.json", image.name])
        fresh.rename(place)


def metadata(disk_bytes: int) -> str:
    """The box's metadata for vagrant-libvirt: the size of its disk in whole GB."""
    size_gb = -(-disk_bytes // (1 << 30))
    return json.dumps({"provider": "libvirt", "format": "qcow2", "virtual_size": size_gb})


def boot_sectors(boot: bytes, core: bytes, partition_bytes: int) -> bytes:
    """The bytes before the partition: a boot record with one entry, GRUB from the next sector on.

    By default, GRUB's boot.img looks for its core there.
    """
    start = _PARTITION_BYTES // _SECTOR_BYTES
    anywhere = b"\xfe\xff\xff"  # as cylinder, head and sector: the numbers of sectors count
    entry = struct.pack(
        "<B3sB3sII", 0x80, anywhere, 0x83, anywhere, start, partition_bytes // _SECTOR_BYTES
    )
    record = boot[:440].ljust(446, b"\0") + entry + bytes(48) + b"\x55\xaa"
    if len(record) + len(core) > _PARTITION_BYTES:
        raise debian.DebianError(f"GRUB of {len(core)} bytes does not fit before the partition.")
    return record + core


def _trust_certificates(root: Path) -> None:
    # Including those that were added to the host, for a proxy that delivers all packages.
    for path in Path("/usr/local/share/ca-certificates").rglob("*.crt"):
        shutil.copy(path, root / "usr/local/share/ca-certificates")
    run(["chroot", root, "update-ca-certificates"])


def _copy_checkout(target: Path) -> None:
    files = run(["git", "-C", CHECKOUT, "ls-files", "-co", "--exclude-standard", "-z"])
    for name in filter(None, files.split("\0")):
        source, copy = CHECKOUT / name, target / name
        if source.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy, follow_symlinks=False)


def _configure(root: Path) -> None:
    run(["chroot", root, "useradd", "--create-home", "--shell", "/bin/bash", "vagrant"])
    files = {
        "home/vagrant/.ssh/authorized_keys": _INSECURE_KEY,
        "etc/sudoers.d/vagrant": "vagrant ALL=(ALL) NOPASSWD: ALL\n",
        "etc/fstab": "/dev/vda1 / ext4 defaults 0 0\n",
        "etc/hostname": "ebpfprof\n",
        "etc/hosts": "127.0.0.1 localhost ebpfprof\n",
        "etc/network/interfaces": "auto lo eth0\niface lo inet loopback\niface eth0 inet dhcp\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    run(["chroot", root, "chmod", "-R", "go=", "/home/vagrant/.ssh", "/etc/sudoers.d/vagrant"])
    run(["chroot", root, "chown", "-R", "vagrant:", "/home/vagrant"])


def _boot_loader(root: Path) -> tuple[bytes, bytes]:
    """GRUB's boot.img and a core.img that starts the newest kernel without a menu."""
    kernel = max((root / "boot").glob("vmlinuz-*"), key=lambda path: path.stat().st_mtime)
    release = kernel.name.removeprefix("vmlinuz-")
    options = "root=/dev/vda1 ro console=tty0 console=ttyS0 net.ifnames=0 quiet"
    lines = [
        f"linux (hd0,msdos1)/boot/vmlinuz-{release} {options}",
        f"initrd (hd0,msdos1)/boot/initrd.img-{release}",
        "boot",
    ]
    folder, config, core = root / "usr/lib/grub/i386-pc", root / "tmp/grub", root / "tmp/core.img"
    config.write_text("\n".join(lines) + "\n")
    words = ["grub-mkimage", "-O", "i386-pc", "-p", "/", "-c", "/tmp/grub", "-o", "/tmp/core.img"]
    run(["chroot", root, *words, *_GRUB_MODULES])
    found = (folder / "boot.img").read_bytes(), core.read_bytes()
    config.unlink()
    core.unlink()
    return found


def main() -> int:
    """Command line. Returns 0, or 2 on errors."""
    place = cache_dir() / "vm" / "box" / "ebpfprof.box"
    if os.geteuid() != 0:
        print("box: Run this as root.", file=sys.stderr)
        return 2
    try:
        make_box(place)
    except debian.DebianError as error:
        print(f"box: {error}", file=sys.stderr)
        return 2
    print(f"vagrant box add --force --name ebpfprof {place}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
