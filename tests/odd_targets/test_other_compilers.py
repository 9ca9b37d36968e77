"""Go programs without Go's own runtime in their file: of gccgo and TinyGo, and packed by UPX."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.export import pprof
from tests.kernel.programs import changed
from tests.kernel.refusal import refused
from tests.kernel.verbs import verb
from tests.odd_targets.test_old_go import HOT, shares
from tests.recorder import end, recording
from tests.targets_run import Target
from tests.tools.target_table import ROOT

pytestmark = pytest.mark.full

OTHER_VERBS = ("dump", "memory", "explain", "trace")
# What TinyGo's runtime for Linux has in its table of symbols (src/runtime/asm_amd64.S), and UPX in
# the header. Debian 12 has neither of them.
LIKE_TINYGO = """
#include <stdio.h>
unsigned long sink;
void tinygo_scanCurrentStack(void) {}
__attribute__((noinline)) void compute(void) { for (;;) sink = sink * 31 + 7; }
int main(void) { printf("ready 0\\n"); fflush(stdout); compute(); }
"""
PADDING_AT = 9  # of e_ident
# gccgo 12 is like Go 1.18, which lacks what the harness of other targets uses.
FOR_GCCGO = """
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime/pprof"
	"time"
)

var sink uint64

//go:noinline
func light() { for i := 0; i < 100000; i++ { sink = sink*31 + 7 } }

//go:noinline
func heavy() { for i := 0; i < 300000; i++ { sink = sink*31 + 7 } }

func main() {
	fmt.Println("ready", os.Getpid())
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		file, _ := os.Create(lines.Text())
		pprof.StartCPUProfile(file)
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
			light()
			heavy()
		}
		pprof.StopCPUProfile()
		file.Close()
		fmt.Println("done")
	}
}
"""


@pytest.fixture(scope="module", autouse=True)
def packages() -> None:
    """gccgo."""
    subprocess.run([ROOT / "tests/setup.sh", "builds"], check=True)


@pytest.fixture(scope="module")
def gccgo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("gccgo")
    source, path = folder / "main.go", folder / "computing"
    source.write_text(FOR_GCCGO)
    subprocess.run(["gccgo-12", "-O1", "-g", "-o", path, source], check=True)
    with Target.start(path) as started:
        yield started


@pytest.fixture(scope="module")
def tinygo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    path = tmp_path_factory.mktemp("tinygo") / "computing"
    subprocess.run(
        ["gcc", "-O1", "-x", "c", "-", "-o", path], input=LIKE_TINYGO, text=True, check=True
    )
    with Target.start(path) as started:
        yield started
        started.kill()


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("packed")
    original = folder / "computing"
    command = ("gcc", "-O1", "-s", "-x", "c", "-", "-o", original)
    subprocess.run(command, input=LIKE_TINYGO, text=True, check=True)
    (folder / "bin").mkdir()
    with Target.start(changed(original, folder / "bin", (PADDING_AT, b"UPX!"))) as started:
        yield started
        started.kill()


def in_one_line(text: str) -> str:
    return " ".join(text.split())


def of_compiler(name: str) -> str:
    return f"the program was built with {name}, whose runtime is not Go's own"


@pytest.mark.parametrize(("fixture", "name"), [("gccgo", "gccgo"), ("tinygo", "TinyGo")])
def test_the_compiler_is_named(
    fixture: str, name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    target: Target = request.getfixturevalue(fixture)
    pid = str(target.pid)
    output = refused(ExitCode.UNSUPPORTED_GO, "--pid", pid, folder=tmp_path)
    assert in_one_line(output).count(of_compiler(name)) == 1
    assert "build it with Go's own compiler; attach --profile cpu records" in output
    for other in OTHER_VERBS:
        said = verb(other, "--pid", pid, folder=tmp_path)
        assert said.code == ExitCode.UNSUPPORTED_GO
        assert of_compiler(name) in in_one_line(said.stderr)
    rows = json.loads(verb("list", "--json", "--all").stdout)["processes"]
    (row,) = (row for row in rows if row["pid"] == target.pid)
    assert not row["supported"]
    assert row["why_not"] == of_compiler(name)


@pytest.mark.target("gccgo", "CPU profile")
def test_the_cpu_profile_of_gccgo_equals_its_own(gccgo: Target, tmp_path: Path) -> None:
    own, ours = tmp_path / "go.prof", tmp_path / "ours.pb.gz"
    options = ("--profile", "cpu", "--hz", "499", "--no-kernel", "-o", str(ours))
    with recording(gccgo.pid, tmp_path, *options) as recorder:
        gccgo.ask(str(own), "done")
        said = end(recorder)
    assert in_one_line(said).count(of_compiler("gccgo")) == 1
    gos, mine = (shares(pprof.decode(path.read_bytes())) for path in (own, ours))
    hot = {function for found in (gos, mine) for function, share in found.items() if share >= HOT}
    assert hot == {"main.light", "main.heavy"}
    # Go's own has a hundred samples a second; how long each takes is known: one to three.
    assert mine["main.heavy"] == pytest.approx(0.75, abs=0.06)


@pytest.mark.target("TinyGo", "CPU profile")
def test_the_cpu_profile_of_tinygo_has_names(tinygo: Target, tmp_path: Path) -> None:
    ours = tmp_path / "ours.pb.gz"
    options = ("--profile", "cpu", "--duration", "0.5", "-o", str(ours))
    said = verb("attach", "--pid", str(tinygo.pid), *options, folder=tmp_path)
    assert said.code == ExitCode.OK, said.stderr
    assert in_one_line(said.stderr).count(of_compiler("TinyGo")) == 1
    assert shares(pprof.decode(ours.read_bytes()))["compute"] > 0.9


@pytest.mark.target("packed by UPX", "CPU profile, without names")
def test_a_packed_program_is_named_as_that(packed: Target, tmp_path: Path) -> None:
    pid, folder = str(packed.pid), tmp_path / "out"
    folder.mkdir()
    output = in_one_line(refused(ExitCode.NOT_GO_PROGRAM, "--pid", pid, folder=folder))
    assert output.count("it is packed by UPX, so its code is not in the file") == 1
    assert "Unpack it (`upx -d`) and start it again" in output
    for other in OTHER_VERBS:
        refusal = verb(other, "--pid", pid, folder=folder)
        assert refusal.code == ExitCode.NOT_GO_PROGRAM
        assert "it is packed by UPX" in in_one_line(refusal.stderr)
    ours = tmp_path / "ours.pb.gz"
    options = ("--profile", "cpu", "--duration", "1", "--no-kernel", "-o", str(ours))
    finished = verb("attach", "--pid", pid, *options, folder=tmp_path)
    assert finished.code == ExitCode.OK, finished.stderr
    said = in_one_line(finished.stderr)
    assert said.count("is packed by UPX: only its CPU profile is recorded") == 1
    assert len(pprof.decode(ours.read_bytes()).samples) > 0
