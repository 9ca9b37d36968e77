"""Packages as people get them: made, installed on a Debian that is fresh, used, and removed."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import pytest

from ebpfprof import __version__
from ebpfprof.export import pprof
from ebpfprof.kernel import uprobe_links
from ebpfprof.privileges.capabilities import NUMBERS
from ebpfprof.privileges.checks import RECORDING
from tests.kernel.kernel_state import has_probes
from tests.kernel.programs import program
from tests.packages.fresh import Booted, Fresh
from tests.targets_run import DEADLINE_S, Target

# The agent of a package records all processes of the machine.
pytestmark = [pytest.mark.full, pytest.mark.alone]

ROOT = Path(__file__).parents[2]
DEB = f"ebpfprof_{__version__}-1+deb12_amd64.deb"
WHEEL = f"ebpfprof-{__version__}-py3-none-any.whl"
CLONE = "a clone of größe x"
IMAGE = "ebpfprof-of-the-test"
# Where the kernel wants more for probes.
NEEDED = frozenset() if uprobe_links.is_offered() else frozenset({"CAP_SYS_ADMIN"})
QUICK = """window = "1s"
min_age = "0s"
max_overhead = 0
max_node_overhead = 100
listen = ""
[[rules]]
action = "keep"
source = "service"
regex = "till"
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fresh]:
    subprocess.run([ROOT / "tests/setup.sh", "fresh"], check=True)
    folder = tmp_path_factory.mktemp("debian")
    yield Fresh.make(folder / "base")
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def made(base: Fresh, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a release, made of what is committed here."""
    builder = base.copy(base.folder.parent / "builder")
    builder.apt("update")
    builder.apt("install", "python3-bpfcc", "python3-venv")
    builder.bare.prepare(CLONE)
    builder.run(f"cd ~/'{CLONE}' && UNRELEASED=1 packaging/release /out")
    # again in another place, later: the same package.
    builder.run(f"cp -r ~/'{CLONE}' /again && /again/packaging/debian/build /again-out")
    first, second = (
        hashlib.sha256((builder.folder / folder / DEB).read_bytes()).hexdigest()
        for folder in ("out", "again-out")
    )
    assert first == second
    return builder.folder / "out"


@pytest.fixture
def target() -> Iterator[Target]:
    with Target.start(program("steps"), env={"OTEL_SERVICE_NAME": "till"}) as running:
        yield running


def fresh(base: Fresh, made: Path, name: str, *packages: str) -> Fresh:
    """A Debian with the release's files in /root, and these packages of Debian's."""
    found = base.copy(base.folder.parent / name)
    for each in made.iterdir():
        shutil.copy(each, found.folder / "root")
    found.apt("update")
    found.apt("install", *packages)
    return found


def attach(debian: Fresh, target: Target) -> None:
    """Record the target with the installed command."""
    recording = subprocess.Popen(
        debian.bare.command(
            f"ebpfprof attach --pid {target.pid} --profile block --duration 3 --max-overhead 0"
            " -o /root/waits.pb.gz --force"
        )
    )
    while not has_probes(target.pid) and recording.poll() is None:
        pass
    target.ask("hand", "done")
    assert recording.wait() == 0
    data = (debian.folder / "root/waits.pb.gz").read_bytes()
    assert any(
        frame.function == "main.hand.func1"
        for sample in pprof.decode(data, kind="block").samples
        for frame in sample.frames
    )


def test_the_checksums_are_those_of_the_files(made: Path) -> None:
    done = subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=made, capture_output=True)
    assert done.returncode == 0
    assert done.stdout.count(b": OK") == len(list(made.iterdir())) - 1 >= 8


def test_the_debian_package(base: Fresh, made: Path, target: Target) -> None:
    debian = fresh(base, made, "deb")
    debian.apt("install", "python3", "libstdc++6")  # what it depends on stays
    before = debian.files()
    output = debian.apt("install", f"./root/{DEB}")
    assert "ebpfprof-agent is neither enabled nor started" in output
    assert debian.run("ebpfprof --version").split()[-1] == __version__
    for name in (
        "lib/systemd/system/ebpfprof-agent.service",
        "usr/share/man/man1/ebpfprof.1.gz",
        "usr/share/bash-completion/completions/ebpfprof",
        "usr/share/doc/ebpfprof/sbom.cdx.json",
    ):
        assert (debian.folder / name).stat().st_size > 100
    assert not list(debian.folder.glob("etc/systemd/system/*.wants/ebpfprof*"))
    attach(debian, target)

    settings = debian.folder / "etc/ebpfprof/agent.toml"
    assert "# window" in settings.read_text()
    settings.write_text(QUICK)
    with debian.agent("/usr/bin/ebpfprof agent"):
        debian.until("ebpfprof history --json", ["till"])
        target.ask("hand", "done")
        debian.until("ebpfprof history --name till --profile block", ["main.hand.func1"])
    assert not has_probes(target.pid)

    debian.apt("install", "--reinstall", f"./root/{DEB}")
    assert settings.read_text() == QUICK
    debian.apt("remove", "ebpfprof")
    assert not (debian.folder / "usr/lib/ebpfprof").exists()
    assert settings.exists()
    assert (debian.folder / "var/lib/ebpfprof/index.sqlite").exists()
    debian.apt("purge", "ebpfprof")
    assert debian.files() - before == set()


def test_the_unit_within_systemd(base: Fresh, made: Path) -> None:
    """The agent with the unit's rights and confinement: it records, reloads and ends."""
    debian = fresh(base, made, "unit", "systemd", "systemd-sysv")
    debian.apt("install", f"./root/{DEB}")
    (debian.folder / "etc/ebpfprof/agent.toml").write_text(QUICK)
    shutil.copy(program("steps"), debian.folder / "root")
    unit = "ebpfprof-agent.service"
    with Booted(debian) as machine:
        assert machine.said(f"systemctl is-enabled {unit}") == "disabled"
        assert machine.said(f"systemctl is-active {unit}") == "inactive"
        machine.said(f"systemctl enable --now {unit}")
        log = f"journalctl --no-pager -u {unit}"
        assert machine.said(f"systemctl is-active {unit}") == "active", machine.said(log)
        pid = f"$(systemctl show -P MainPID {unit})"
        (held,) = re.findall(r"CapEff:\s+(\w+)", machine.said(f"cat /proc/{pid}/status"))
        assert int(held, 16) == sum(1 << NUMBERS[each] for each in RECORDING | NEEDED)
        assert "Permission" not in machine.said("nsenter -t " + pid + " -m head -1 /proc/kallsyms")

        here, *words = machine.command("env", "OTEL_SERVICE_NAME=till", "/root/steps")
        with Target.start(Path(shutil.which(here) or here), *words) as target:
            machine.until("ebpfprof history --json", "till")
            target.ask("hand", "done")
            machine.until("ebpfprof history --name till --profile block", "main.hand.func1")
            machine.said(f"systemctl reload {unit}")
            machine.until(log, "The configuration was reloaded.")
            assert machine.said(f"systemctl stop {unit}; systemctl is-failed {unit}") == "inactive"
        machine.said(f"systemctl start {unit}")
        assert machine.said(f"systemctl is-active {unit}") == "active"
        output = machine.said("DEBIAN_FRONTEND=noninteractive apt-get -q -y purge ebpfprof")
        assert "Removing ebpfprof" in output
        assert machine.said(f"systemctl is-active {unit}") == "inactive"
    for left in ("etc/ebpfprof", "var/lib/ebpfprof", "usr/lib/ebpfprof"):
        assert not (debian.folder / left).exists()
    assert not list(debian.folder.rglob("etc/systemd/**/ebpfprof*"))


def test_the_image(base: Fresh, made: Path, target: Target, tmp_path: Path) -> None:
    """The steps of the Dockerfile, and the agent in a container without a privilege too many."""
    source = made.parent / "root" / CLONE
    base_image = "docker.io/library/debian:bookworm-slim"
    tar = ["tar", "-C", str(base.folder), "-c", "."]
    with subprocess.Popen(tar, stdout=subprocess.PIPE) as archive:
        podman("import", "--quiet", "-", base_image, stdin=archive.stdout)
    assert archive.returncode == 0
    options = ("--pull=never", "--isolation=chroot", "--network=host", "--quiet")
    (source / "dist").mkdir()
    shutil.copy(made / DEB, source / "dist")
    podman("build", *options, "-f", f"{source}/packaging/docker/Dockerfile", "-t", IMAGE, source)

    rights = [f"--cap-add={name.removeprefix('CAP_')}" for name in sorted(RECORDING | NEEDED)]
    settings, ring = tmp_path / "agent.toml", tmp_path / "ring"
    settings.write_text(f'host_root = "/proc/1/root"\n{QUICK}')
    ring.mkdir(mode=0o755)
    podman(
        *("run", "--detach", "--name", IMAGE, "--pid=host", "--network=host", "--cap-drop=ALL"),
        *(
            *rights,
            "--security-opt=no-new-privileges",
            f"--security-opt=seccomp={seccomp(tmp_path)}",
        ),
        *(
            "--read-only",
            "--tmpfs=/run",
            "--tmpfs=/tmp",
            "--ulimit=nofile=4096",
            "--ulimit=nproc=4096",
        ),
        *(f"--volume={ring}:/var/lib/ebpfprof", f"--volume={settings}:/etc/ebpfprof/agent.toml:ro"),
        IMAGE,
    )
    try:
        history = ("exec", IMAGE, "ebpfprof", "history", "--name", "till", "--profile", "block")
        await_said(history, "Watched")
        target.ask("hand", "done")
        await_said(history, "main.hand.func1")
        podman("stop", "--time=30", IMAGE)
        assert podman("inspect", "--format={{.State.ExitCode}}", IMAGE).strip() == "0"
        assert not has_probes(target.pid)
    finally:
        podman("rm", "--force", IMAGE)
        podman("rmi", "--force", IMAGE, base_image)


def podman(*words: str | Path, stdin: IO[bytes] | None = None) -> str:
    """Run podman, and return what it prints; fails if it fails."""
    command = ["podman", "--cgroup-manager=cgroupfs", "--runtime=runc", *words]
    done = subprocess.run(command, stdin=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def await_said(command: Sequence[str], words: str) -> None:
    """Run a command of podman's until it prints these words."""
    until, output = time.monotonic() + DEADLINE_S, ""
    while words not in output:
        assert time.monotonic() < until, output
        time.sleep(0.5)
        done = subprocess.run(
            ["podman", "--cgroup-manager=cgroupfs", "--runtime=runc", *command],
            capture_output=True,
            text=True,
            check=False,
        )
        output = done.stdout + done.stderr


def seccomp(folder: Path) -> Path:
    """The profile of containers, in which CAP_BPF and CAP_PERFMON count as in containerd's."""
    calls = {"bpf": "CAP_BPF", "perf_event_open": "CAP_PERFMON"}
    profile = json.loads(Path("/usr/share/containers/seccomp.json").read_text())
    for rule in profile["syscalls"]:
        if rule["action"] != "SCMP_ACT_ALLOW":
            rule["names"] = [each for each in rule["names"] if each not in calls]
    profile["syscalls"] = [rule for rule in profile["syscalls"] if rule["names"]]
    for call, right in calls.items():
        rule = {"names": [call], "action": "SCMP_ACT_ALLOW", "includes": {"caps": [right]}}
        profile["syscalls"].append(rule)
    path = folder / "seccomp.json"
    path.write_text(json.dumps(profile))
    return path


def test_the_wheel_with_pipx(base: Fresh, made: Path, target: Target) -> None:
    debian = fresh(base, made, "pipx", "pipx", "python3-venv")
    before = debian.files()
    pipx = "env PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin pipx"
    constraint = f"--constraint /root/ebpfprof-{__version__}.constraints.txt"
    install = f"{pipx} install --pip-args='{constraint}' /root/{WHEEL}"
    debian.run(install)
    attach(debian, target)
    debian.run(install.replace("install ", "install --force ", 1))
    (debian.folder / "root/agent.toml").write_text(QUICK)
    with debian.agent("/usr/local/bin/ebpfprof agent --config /root/agent.toml"):
        debian.until("ebpfprof history --json", ["till"])
    debian.run(f"{pipx} uninstall ebpfprof; rm -r /var/lib/ebpfprof")
    # Compiled programs, until the machine boots again; pipx's own logs and pip.
    kept = ("run/ebpfprof", "opt/pipx")
    assert sorted(file for file in debian.files() - before if not file.startswith(kept)) == []
