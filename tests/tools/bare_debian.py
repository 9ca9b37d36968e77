"""The README's two commands in a clone, on a bare Debian 12; or a wheel on any distribution.

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

    python -m tests.tools.bare_debian --wheel dist/ebpfprof-0.1.0-py3-none-any.whl --release trixie
    python -m tests.tools.bare_debian --wheel FILE --folder ROOT --keep   # an unpacked distribution

With --wheel, pipx of that distribution installs the wheel as docs/install.md says, without BCC, and
`ebpfprof attach` records a Go program that runs outside. It prints a row of the table there. Debian
and Ubuntu are made by debootstrap; --keyring is that of the package ubuntu-archive-keyring, which
Debian 13 has, and Debian 12's debootstrap needs a link scripts/noble to gutsy for Ubuntu 24.04, as
newer ones have. Others are unpacked into a folder before.
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
DEBIANS: Final = ("bookworm", "trixie", "forky", "sid")
"""Releases in the archive that this machine uses; debootstrap knows where others are."""
PIPX: Final = "env PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin pipx install"
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


@dataclass(frozen=True)
class Way:
    """How a distribution gets pipx, and what a package of ours needs besides.

    `options` are those of `pipx install`.
    """

    prepare: str
    options: str = ""


def _apt(*packages: str) -> str:
    return (
        "export DEBIAN_FRONTEND=noninteractive; apt-get -q update >/dev/null; "
        f"apt-get -q install -y --no-install-recommends {shlex.join(packages)} >/dev/null"
    )


WAYS: Final[Mapping[str, Way]] = {
    "debian": Way(_apt("pipx", "python3-venv")),
    "ubuntu": Way(_apt("pipx", "python3-venv")),
    # Its python3 is 3.10; debootstrap knows nothing of updates.
    "ubuntu 22.04": Way(
        "sed -n 's/ jammy / jammy-updates /p' /etc/apt/sources.list >>/etc/apt/sources.list;"
        + f" {_apt('pipx', 'python3.11-venv')}",
        "--python python3.11",
    ),
    "fedora": Way("dnf -q -y install pipx"),
    "alpine": Way("apk -q add pipx"),
}
"""By the ID, or ID and VERSION_ID, of /etc/os-release."""


def mirror() -> str:
    """Where this machine has Debian's packages from. Raises RuntimeError if it has none."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)"]
    wanted = [f"Codename: {RELEASE}", "Component: main"]
    done = subprocess.run([*command, *wanted], stdout=subprocess.PIPE, text=True, check=True)
    if not done.stdout.strip():
        raise RuntimeError(f"apt has no packages of {RELEASE} here; run apt-get update.")
    return done.stdout.split()[0]


def install(folder: Path, release: str = RELEASE, keyring: Path | None = None) -> None:
    """Make a Debian, or Ubuntu, that reaches registries as this machine does.

    Its packages are signed with keys of the `keyring`; None: of debootstrap's usual one.
    """
    command = ["debootstrap", "--variant=minbase", "--include=git,ca-certificates"]
    command += [f"--keyring={keyring}"] if keyring else []
    if release not in DEBIANS:
        command.append("--components=main,universe")
    sources = [mirror()] if release in DEBIANS else []
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)  # that of a temporary folder is 0700, which bars all users but root
    isolated = ["unshare", "--mount", "--propagation", "private"]
    subprocess.run(
        [*isolated, *command, release, folder, *sources], stdout=subprocess.DEVNULL, check=True
    )
    connect(folder)


def connect(folder: Path) -> None:
    """Let a distribution reach registries as this machine does."""
    settings = subprocess.run(
        ["apt-config", "dump", "Acquire"], stdout=subprocess.PIPE, text=True, check=True
    )
    if (folder / "etc/apt/apt.conf.d").is_dir():
        (folder / "etc/apt/apt.conf.d/00host").write_text(settings.stdout)
    for name in COPIED:
        if Path("/", name).exists() and (folder / name).parent.is_dir():
            shutil.copyfile(Path("/", name), folder / name)


@contextmanager
def bare_debian(options: argparse.Namespace) -> Iterator[Bare]:
    """A new Debian, or one that was kept; it is removed with all that runs in it unless kept."""
    folder = options.folder or Path(tempfile.mkdtemp(prefix="ebpfprof-debian-"))
    bare = Bare(folder, options.user, options.container, has_sudo=not options.fast)
    try:
        if not (folder / "etc/os-release").exists():
            install(folder, options.release, options.keyring)
        yield bare
    finally:
        while running := bare.processes():
            for pid in running:
                with suppress(ProcessLookupError):  # it has ended
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


def os_release(folder: Path) -> Mapping[str, str]:
    """What /etc/os-release says of the distribution in a folder."""
    words = shlex.split((folder / "etc/os-release").read_text(), comments=True)
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def try_wheel(bare: Bare, wheel: Path) -> bool:
    """Install a wheel with pipx, and record a Go program outside; print a row for the docs."""
    from ebpfprof.export import pprof
    from tests.kernel.programs import program
    from tests.targets_run import Target

    system = os_release(bare.folder)
    named = system["ID"], f"{system['ID']} {system.get('VERSION_ID', '')}"
    way = WAYS[named[1] if named[1] in WAYS else named[0]]
    connect(bare.folder)
    shutil.copy(wheel, bare.folder / "root")
    install = f"{PIPX} {way.options} /root/{wheel.name} >/dev/null"
    python = "/opt/pipx/venvs/ebpfprof/bin/python"
    with Target.start(program("crowd"), "-each=10ms") as target:
        record = f"ebpfprof attach --pid {target.pid} --duration 3 -o /root/found --force"
        scripts = (
            way.prepare,
            install,
            f'{python} -c "import platform; print(platform.python_version())" >/root/python',
            f"! {python} -c 'import bcc' 2>/dev/null",
            record,
        )
        done = next((script for script in scripts if bare.run(script)), "")
    functions = set[str]()
    if not done:
        data = (bare.folder / "root/found.block.pb.gz").read_bytes()
        samples = pprof.decode(data, kind="block").samples
        functions = {frame.function for sample in samples for frame in sample.frames}
    is_right = "main.wait" in functions
    what = "works" if is_right else f"failed: {done or 'main.wait is missing'}"
    version = bare.folder / "root/python"
    number = version.read_text().strip() if version.exists() else ""
    print(f"| {system.get('PRETTY_NAME', named[1])} | {number} | {what} |", flush=True)
    return is_right


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
    parser.add_argument("--release", default=RELEASE, help="of Debian or Ubuntu, such as trixie")
    parser.add_argument("--keyring", type=Path, help="the keys of its archive, for debootstrap")
    parser.add_argument("--wheel", type=Path, help="install this file with pipx, and use it")
    parser.add_argument("--fast", action="store_true", help="CONTRIBUTING's commands, without root")
    parser.add_argument("--no-demo", action="store_true", help="tests/run.sh only")
    parser.add_argument("--no-tests", action="store_true", help="tests/demo.sh only")
    parser.add_argument("--keep", action="store_true", help="leave the folder there")
    parser.add_argument("arguments", nargs="*", help="those of tests/run.sh")
    return parser.parse_args()


def main() -> int:
    """Try the commands; the exit status is 0 only if they passed and left nothing."""
    options = parsed()
    if options.wheel:
        with bare_debian(options) as bare:
            return 0 if try_wheel(bare, options.wheel) else 1
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
