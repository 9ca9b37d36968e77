"""Packages as people get them: made, installed on a Debian that is fresh, used, and removed."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebpfprof import __version__
from ebpfprof.export import pprof
from tests.kernel.kernel_state import has_probes
from tests.kernel.programs import program
from tests.packages.fresh import Fresh
from tests.targets_run import Target

pytestmark = pytest.mark.long

DEB = f"ebpfprof_{__version__}-1+deb12_amd64.deb"
WHEEL = f"ebpfprof-{__version__}-py3-none-any.whl"
QUICK = 'window = "1s"\nmin_age = "0s"\nmax_overhead = 0\nmax_node_overhead = 100\nlisten = ""\n'


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fresh]:
    folder = tmp_path_factory.mktemp("debian")
    yield Fresh.make(folder / "base")
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def made(base: Fresh, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a release, made of what is committed here."""
    builder = base.copy(base.folder.parent / "builder")
    builder.apt("update")
    builder.apt("install", "python3-venv")
    builder.bare.prepare("a clone of größe x")
    builder.run("cd ~/'a clone of größe x' && packaging/release /out")
    # Once more in another place, later: the same package.
    builder.run("cp -r ~/'a clone of größe x' /again && /again/packaging/debian/build /again-out")
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
    debian = fresh(base, made, "deb", "python3-bpfcc")
    before = debian.files()
    said = debian.apt("install", f"./root/{DEB}")
    assert "ebpfprof-agent is neither enabled nor started" in said
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


def test_the_wheel_with_pipx(base: Fresh, made: Path, target: Target) -> None:
    debian = fresh(base, made, "pipx", "pipx", "python3-bpfcc", "python3-venv")
    before = debian.files()
    pipx = "env PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin pipx"
    constraint = f"--constraint /root/ebpfprof-{__version__}.constraints.txt"
    install = f"{pipx} install --system-site-packages --pip-args='{constraint}' /root/{WHEEL}"
    debian.run(install)
    attach(debian, target)
    debian.run(install.replace("install ", "install --force ", 1))
    (debian.folder / "root/agent.toml").write_text(QUICK)
    with debian.agent("/usr/local/bin/ebpfprof agent --config /root/agent.toml"):
        debian.until("ebpfprof history --json", ["till"])
    debian.run(f"{pipx} uninstall ebpfprof; rm -r /var/lib/ebpfprof")
    # Compiled programs, until the machine boots again; pipx's own logs and pip.
    kept = ("run/ebpfprof", "opt/pipx")
    assert sorted(each for each in debian.files() - before if not each.startswith(kept)) == []
