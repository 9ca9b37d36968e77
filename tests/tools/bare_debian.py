"""The README's two commands in a clone, on a bare Debian 12.

    python -m tests.tools.bare_debian [OPTION...] [ARGUMENT...]

As root on Debian 12, with debootstrap: package registries are reached as from this machine. Makes
a Debian with git and ca-certificates in a folder, clones what is committed here into root's home
there (mode 0700), and runs tests/demo.sh and tests/run.sh in it as a chroot. ARGUMENTs are those of
tests/run.sh. What a command left, processes and files in /tmp, is named, and a failure. In the end
the folder is removed; what was mounted is gone with the mount namespace of each command.

    python -m tests.tools.bare_debian                                     # both, all of it
    python -m tests.tools.bare_debian --clone 'größe x/clone' tests/unit  # a path with odd letters
    python -m tests.tools.bare_debian --user anna                         # a user's home, with sudo
    python -m tests.tools.bare_debian --container                         # own namespaces
    python -m tests.tools.bare_debian --fast                              # CONTRIBUTING's commands

With --fast, a user without sudo runs the three commands with which CONTRIBUTING.md begins, where
Debian's python3-venv is installed.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
RELEASE: Final = "bookworm"
# How this machine reaches registries.
KEPT: Final = ("PIP_*", "*_proxy", "*_PROXY", "SSL_CERT_*", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO")
FAST: Final = (
    "python3 -m venv .venv",
    ".venv/bin/pip install -q -e .[dev]",
    ".venv/bin/pytest -m fast -n auto",
)
KEPT_BY_PYTEST: Final = "pytest-of-*"  # of its last three runs
COPIED: Final = (
    "etc/hosts",
    "etc/resolv.conf",
    "etc/pip.conf",
    "etc/ssl/certs/ca-certificates.crt",
)
SEARCH_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MOUNTED: Final = "mount -t proc proc proc && mount --rbind /sys sys && mount --rbind /dev dev"
# Shell scripts; arguments are the folder and a command. All mounts end with what runs there. The
# root of a chroot is no mount, as that of most is not; that of a container is.
CHROOT: Final = f'cd "$1" && {MOUNTED} && exec chroot "$@"'
CONTAINER: Final = (
    f'mount --bind "$1" "$1" && cd "$1" && {MOUNTED} && pivot_root . . && umount --lazy . '
    '&& cd / && shift && exec "$@"'
)


@dataclass(frozen=True)
class Bare:
    """A Debian in a folder, and whose home the clone is in: root's, or a user's."""

    folder: Path
    user: str | None
    is_container: bool  # with namespaces of its own, not a chroot
    has_sudo: bool = True

    @property
    def home(self) -> str:
        return f"/home/{self.user}" if self.user else "/root"

    def command(self, script: str, *, as_root: bool = False) -> list[str]:
        """The command that runs a shell script there."""
        become, home = [], "/root"
        if self.user and not as_root:
            become = ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--init-groups"]
            home = self.home
        isolated = ["--pid", "--fork", "--kill-child"] if self.is_container else []
        enter = CONTAINER if self.is_container else CHROOT
        environment = [f"{name}={value}" for name, value in environment_of_registries().items()]
        return [
            *("unshare", "--mount", "--propagation", "private", *isolated),
            *("sh", "-c", enter, "sh", str(self.folder), *become),
            *("env", "-i", f"HOME={home}", f"PATH={SEARCH_PATH}", "TERM=dumb", *environment),
            *("sh", "-e", "-c", script),
        ]

    def run(self, script: str, *, as_root: bool = False) -> int:
        """Run a shell script there; returns its exit status."""
        command = self.command(script, as_root=as_root)
        return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode

    def prepare(self, clone: str) -> None:
        """Clone what is committed into the folder `clone` of the home; raises RuntimeError."""
        subprocess.run(
            ["git", "bundle", "create", "--quiet", self.folder / "checkout.bundle", "HEAD"],
            cwd=ROOT,
            check=True,
        )
        make_user = MAKE_USER if self.has_sudo else MAKE_USER_OF_FAST
        if self.user and self.run(make_user.format(user=self.user), as_root=True):
            raise RuntimeError(f"The user {self.user} could not be made.")
        folder = shlex.quote(f"{self.home}/{clone}")
        self.run(f"rm -rf {folder}", as_root=True)
        if self.run(f"git clone --quiet /checkout.bundle {folder}"):
            raise RuntimeError("git clone failed.")

    def processes(self) -> list[int]:
        """Processes that run there."""
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self._has(pid)]

    def _has(self, pid: int) -> bool:
        try:
            return os.path.samefile(f"/proc/{pid}/root", self.folder)
        except OSError:
            return False

    def left_behind(self) -> list[str]:
        """Processes and temporary files that are there now, in words."""
        names = sorted(path.name for path in (self.folder / "tmp").iterdir())
        return [
            *(f"process {pid}: {command_of(pid)}" for pid in self.processes()),
            *(f"/tmp/{name}" for name in names if not fnmatch(name, KEPT_BY_PYTEST)),
        ]


_ADD_USER: Final = """
id {user} >/dev/null 2>&1 || useradd --create-home --shell /bin/bash {user}
chmod 0700 /home/{user}
"""
_INSTALL: Final = """
apt-get -q update >/dev/null
apt-get -q install -y --no-install-recommends %s >/dev/null 2>&1
"""
MAKE_USER: Final = f"""{_INSTALL % "sudo"}{_ADD_USER}
printf '%s ALL=(ALL:ALL) NOPASSWD: ALL\\n' {{user}} >/etc/sudoers.d/{{user}}
"""
MAKE_USER_OF_FAST: Final = f"""{_INSTALL % "python3-venv"}{_ADD_USER}"""


def command_of(pid: int) -> str:
    """The command line of a process, as far as it is still there."""
    try:
        return (
            Path(f"/proc/{pid}/cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode("utf-8", "replace")
        )
    except OSError:
        return "ended"


def environment_of_registries() -> Mapping[str, str]:
    """The variables by which this machine reaches registries."""
    return {
        name: value
        for name, value in os.environ.items()
        if any(fnmatch(name, pattern) for pattern in KEPT)
    }


def mirror() -> str:
    """Where this machine has Debian's packages from. Raises RuntimeError if it has none."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)"]
    wanted = [f"Codename: {RELEASE}", "Component: main"]
    done = subprocess.run([*command, *wanted], stdout=subprocess.PIPE, text=True, check=True)
    if not done.stdout.strip():
        raise RuntimeError(f"apt has no packages of {RELEASE} here; run apt-get update.")
    return done.stdout.split()[0]


def install(folder: Path) -> None:
    """Make a Debian that reaches registries as this machine does."""
    command = ["debootstrap", "--variant=minbase", "--include=git,ca-certificates"]
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)  # that of a temporary folder is 0700, which bars all users but root
    isolated = ["unshare", "--mount", "--propagation", "private"]
    subprocess.run(
        [*isolated, *command, RELEASE, folder, mirror()], stdout=subprocess.DEVNULL, check=True
    )
    settings = subprocess.run(
        ["apt-config", "dump", "Acquire"], stdout=subprocess.PIPE, text=True, check=True
    )
    (folder / "etc/apt/apt.conf.d/00host").write_text(settings.stdout)
    for name in COPIED:
        if Path("/", name).exists():
            shutil.copyfile(Path("/", name), folder / name)


@contextmanager
def bare_debian(options: argparse.Namespace) -> Iterator[Bare]:
    """A new Debian, or one that was kept; it is removed with all that runs in it unless kept."""
    folder = options.folder or Path(tempfile.mkdtemp(prefix="ebpfprof-debian-"))
    bare = Bare(folder, options.user, options.container, has_sudo=not options.fast)
    try:
        if not (folder / "etc/debian_version").exists():
            install(folder)
        yield bare
    finally:
        while running := bare.processes():
            for pid in running:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)
        if not options.keep:
            shutil.rmtree(folder)


def attempt(bare: Bare, clone: str, command: str) -> bool:
    """Run a command in the clone; say how it went, and what it left behind."""
    print(f"\n=== {bare.home}/{clone}$ {command}", flush=True)
    before, begin = set(bare.left_behind()), time.monotonic()
    become = "sudo " if bare.user and bare.has_sudo else ""
    status = bare.run(f"cd; cd {shlex.quote(clone)}; {become}{command}")
    took_s = time.monotonic() - begin
    left = [name for name in bare.left_behind() if name not in before]
    print(f"=== {command}: exit status {status} after {took_s:.0f} s", flush=True)
    for name in left:
        print(f"=== left behind: {name}", flush=True)
    return status == 0 and not left


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.bare_debian")
    parser.add_argument("--folder", type=Path, help="make it here, or use what was kept here")
    parser.add_argument(
        "--clone", default="ebpfprof", help="where in the home to clone to, such as 'größe x/clone'"
    )
    parser.add_argument("--user", help="not root's home but that of a user with sudo")
    parser.add_argument(
        "--container", action="store_true", help="not a chroot but a container for each command"
    )
    parser.add_argument("--fast", action="store_true", help="CONTRIBUTING's commands, without root")
    parser.add_argument("--no-demo", action="store_true", help="tests/run.sh only")
    parser.add_argument("--no-tests", action="store_true", help="tests/demo.sh only")
    parser.add_argument("--keep", action="store_true", help="leave the folder there")
    parser.add_argument("arguments", nargs="*", help="those of tests/run.sh")
    return parser.parse_args()


def main() -> int:
    """Try the commands; the exit status is 0 only if they passed and left nothing."""
    options = parsed()
    if options.fast:
        options.user = options.user or "anna"
        commands = list(FAST)
    else:
        tests = shlex.join(["tests/run.sh", *options.arguments])
        commands = [*([] if options.no_demo else ["tests/demo.sh"])]
        commands += [] if options.no_tests else [tests]
    with bare_debian(options) as bare:
        bare.prepare(options.clone)
        # The second runs in any case: a release needs the result of both.
        passed = [attempt(bare, options.clone, command) for command in commands]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
