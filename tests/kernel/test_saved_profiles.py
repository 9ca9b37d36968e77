"""`ebpfprof report` and `ebpfprof diff` on Go's own profiles and on ours."""

from __future__ import annotations

import gzip
import json
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ebpfprof.errors import InvalidProfile
from ebpfprof.export import formats, pprof
from ebpfprof.profile.model import Frame, Profile, Sample
from ebpfprof.profile.wait_histogram import WaitHistogram
from tests.builds import versions
from tests.recorded import replay
from tests.recorder import check_profile
from tests.toolchains import toolchain
from tests.unit.export.profiles import CPU, HEAP, IDLE, nasty
from tests.unit.export.small_profile import LOCK, SMALL

COMMAND = (sys.executable, "-m", "ebpfprof")
OWN = Path(__file__).parents[1] / "targets" / "ownprofiles"
VERSIONS = pytest.mark.parametrize("minor", versions("1.19", "1.27"))
# Formats that take profiles of all kinds.
ANY_PROFILE = tuple(name for name in formats.PROFILES if not formats.FORMATS[name].needs_type)
SUFFIX = {"html": b"<!DOCTYPE html>", "speedscope": b'{"$schema"', "json": b'{"format"'}


def run(
    *arguments: str | Path, stdin: bytes = b"", cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run the command in this process, or in one of its own if it reads standard input."""
    words = [*map(str, arguments)]
    if "-" in words:
        return subprocess.run(
            [*COMMAND, *words], input=stdin, capture_output=True, cwd=cwd, timeout=60
        )
    done = replay.run(words, folder=cwd or Path.cwd())
    return subprocess.CompletedProcess(words, done.code, done.stdout, done.stderr)


def output(*arguments: str | Path, stdin: bytes = b"") -> str:
    done = run(*arguments, stdin=stdin)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode()


def refusal(*arguments: str | Path, code: int, stdin: bytes = b"") -> str:
    """The message on stderr; stdout must be empty, and no traceback anywhere."""
    done = run(*arguments, stdin=stdin)
    said = done.stderr.decode()
    assert (done.returncode, done.stdout) == (code, b""), said
    assert "Traceback" not in said
    assert "This is a bug" not in said
    return said


def save(folder: Path, name: str, profile: Profile) -> Path:
    path = folder / name
    path.write_bytes(pprof.encode(profile))
    return path


@pytest.fixture(scope="module")
def own_profiles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By Go version, a folder with every profile that a program has written of itself."""
    folders = {minor: tmp_path_factory.mktemp(f"own-{minor}") for minor in ("1.19", "1.27")}
    for minor, folder in folders.items():
        subprocess.run([toolchain(minor).build(OWN), folder], check=True, timeout=60)
    return folders


def rows(text: str) -> list[str]:
    return [re.sub(r" +", " ", line).strip() for line in text.splitlines()]


@VERSIONS
def test_every_profile_of_gos_own_is_shown(minor: str, own_profiles: dict[str, Path]) -> None:
    folder = own_profiles[minor]
    for path in sorted(folder.glob("*.pb.gz")):
        profile = pprof.decode(path.read_bytes())
        assert formats.encode(profile, "speedscope")
        assert formats.encode(profile, "json")
    names = ("allocs", "block", "cpu", "goroutine", "heap", "mutex")
    shown = {f"{name}.pb.gz": output("report", folder / f"{name}.pb.gz") for name in names}
    sentences = {name: text.splitlines()[0] for name, text in shown.items()}
    assert "of waiting: " in sentences["block.pb.gz"]
    assert "of CPU time: " in sentences["cpu.pb.gz"]
    first = {name: text.splitlines()[2] for name, text in shown.items()}
    assert first["block.pb.gz"] == "Waits of ownprofiles:"
    assert first["mutex.pb.gz"] == "Releases of contended locks of ownprofiles:"
    assert first["cpu.pb.gz"].startswith("CPU time of ownprofiles in ")
    assert first["heap.pb.gz"] == "Memory in use of ownprofiles:"
    assert first["allocs.pb.gz"] == "Allocated memory of ownprofiles:"
    assert "Mutex.Lock" in shown["block.pb.gz"]
    assert "Mutex.Unlock" in shown["mutex.pb.gz"]
    assert "main.compute" in shown["cpu.pb.gz"]
    assert "main.allocate" in shown["heap.pb.gz"]
    assert "In use" in shown["heap.pb.gz"]
    assert "Allocated" in shown["allocs.pb.gz"]
    assert "Goroutine" in shown["goroutine.pb.gz"]


@VERSIONS
def test_a_heap_profile_agrees_with_gos_pprof(minor: str, own_profiles: dict[str, Path]) -> None:
    heap = own_profiles[minor] / "heap.pb.gz"
    ours = output("report", heap, "--sample-type", "alloc_objects")
    (row,) = [row for row in rows(ours) if row.endswith(" main.allocate")]
    go = toolchain(minor)
    command = ["tool", "pprof", "-top", "-sample_index=alloc_objects", str(heap)]
    (theirs,) = [row for row in rows(go.go(*command)) if row.endswith(" main.allocate")]
    assert int(row.split()[0]) == int(theirs.split()[0])


@VERSIONS
def test_gos_text_profiles_get_advice(minor: str, own_profiles: dict[str, Path]) -> None:
    folder = own_profiles[minor]
    assert "without debug=." in refusal("report", folder / "block.txt", code=1)
    for path in sorted(folder.glob("*.txt")):
        with pytest.raises(InvalidProfile, match="old text form"):
            pprof.decode(path.read_bytes())


@pytest.mark.parametrize("name", ["folded", "speedscope", "html", "json", "text", "pprof"])
def test_report_writes_every_format_to_a_file(name: str, tmp_path: Path) -> None:
    source = save(tmp_path, "in.pb.gz", replace(SMALL, time_ns=time.time_ns()))
    done = run("report", source, "-f", name, "-o", tmp_path / "out")
    assert (done.returncode, done.stdout) == (0, b"")
    said = done.stderr.decode()
    hidden = "Hidden as idle: 300 ns in 2 waits (worker waiting for work 300 ns)\n"
    assert said == f"Written: {tmp_path}/out\n" + (hidden if name == "html" else "")
    written = (tmp_path / "out").read_bytes()
    assert written.startswith(SUFFIX.get(name, b""))
    if name == "pprof":
        assert pprof.decode(written) == pprof.decode(source.read_bytes())
        check_profile(written, "out")
    else:
        assert output("report", source, "-f", name).encode() == written
        assert b"main.work" in written


@pytest.mark.parametrize(
    ("name", "options", "format_name"),
    [
        ("WAITS.HTML", (), "html"),
        ("waits.json", (), "json"),
        ("waits.speedscope.json", (), "speedscope"),
        ("waits.pb.gz", (), "pprof"),
        ("waits.html.txt", (), "text"),
        ("waits", (), "text"),
        ("waits.html", ("-f", "json"), "json"),
    ],
)
def test_the_file_name_chooses_the_format(
    name: str, options: Sequence[str], format_name: str, tmp_path: Path
) -> None:
    source = save(tmp_path, "in", SMALL)
    assert run("report", source, "-o", tmp_path / name, *options).returncode == 0
    hide_idle = formats.hides_idle(format_name, None)
    profile = pprof.decode(source.read_bytes())
    expected = formats.encode(profile, format_name, hide_idle=hide_idle)
    assert (tmp_path / name).read_bytes() == expected


def test_formats_without_differences_are_refused(tmp_path: Path) -> None:
    source = save(tmp_path, "in.pb.gz", SMALL)
    said = refusal("diff", source, source, "-o", tmp_path / "x.speedscope.json", code=2)
    assert "no format has this ending" in said
    assert run("diff", source, source, "-o", tmp_path / "x.html").returncode == 0
    assert (tmp_path / "x.html").read_bytes().startswith(b"<!DOCTYPE html>")


@pytest.mark.parametrize("verb", ["report", "diff"])
def test_an_existing_file_is_replaced_only_with_force(verb: str, tmp_path: Path) -> None:
    source = save(tmp_path, "in.pb.gz", SMALL)
    files = [source] * (2 if verb == "diff" else 1)
    before = source.read_bytes()
    said = refusal(verb, *files, "-f", "html", "-o", source, code=9)
    assert "is there already" in said
    assert "--force" in said
    assert source.read_bytes() == before
    done = run(verb, *files, "-f", "html", "-o", source, "--force")
    assert done.returncode == 0, done.stderr
    assert source.read_bytes().startswith(b"<!DOCTYPE html>")


def test_several_files_are_added_up(tmp_path: Path) -> None:
    one = save(tmp_path, "one.pb.gz", SMALL)
    two = save(tmp_path, "two.pb.gz", replace(SMALL, duration_ns=10_000_000_000))
    both = tmp_path / "both.pb.gz"
    done = run("report", "--merge", one, two, one, "-o", both)
    assert done.returncode == 0, done.stderr
    found = pprof.decode(both.read_bytes())
    assert [each.values for each in found.samples] == [(3, 13500), (6, 900)]
    assert found.duration_ns == 70_000_000_000


def test_several_files_without_merge_are_refused(tmp_path: Path) -> None:
    one = save(tmp_path, "one.pb.gz", SMALL)
    assert "--merge" in refusal("report", one, one, code=2)
    assert "standard input" in refusal("report", "--merge", "-", "-", code=2)
    other = save(tmp_path, "cpu.pb.gz", CPU)
    assert "of the same kind" in refusal("report", "--merge", one, other, code=1)
    wakes = ("sync.(*Mutex).Unlock", "/go/sync/mutex.go", 212, 210)
    mutex = replace(SMALL, samples=(Sample((replace(LOCK, frames=(Frame(*wakes),)),), (1, 10)),))
    same = save(tmp_path, "mutex.pb.gz", mutex)
    assert "block profile and a mutex profile" in refusal("report", "--merge", one, same, code=1)


def test_only_a_cpu_profile_is_for_the_compiler(tmp_path: Path) -> None:
    block = save(tmp_path, "block.pb.gz", SMALL)
    said = refusal("report", block, "-o", tmp_path / "default.pgo", code=1)
    assert "cpu profiles only" in said
    assert "--hide-idle is not for pgo files" in refusal(
        "report", block, "-f", "pgo", "--hide-idle", code=2
    )


def test_a_profile_comes_through_a_pipe() -> None:
    data = pprof.encode(SMALL)
    assert "RWMutex.Lock" in output("report", "-", stdin=data)
    assert "RWMutex.Lock" in output("report", "-", stdin=gzip.decompress(data))


@pytest.mark.parametrize("name", ANY_PROFILE)
def test_a_closed_pipe_is_not_an_error(name: str, tmp_path: Path) -> None:
    source = save(tmp_path, "in.pb.gz", SMALL)
    with subprocess.Popen(
        [*COMMAND, "report", source, "-f", name],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
    ) as child:
        assert child.stdout is not None
        child.stdout.close()
        assert child.stderr is not None
        assert child.stderr.read() == b""
    assert child.returncode == 0
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize(
    ("verb", "name"),
    [
        *(("report", name) for name in ANY_PROFILE),
        *(("diff", name) for name in formats.DIFFERENCES),
    ],
)
def test_a_full_disk_is_reported(verb: str, name: str, tmp_path: Path) -> None:
    source = save(tmp_path, "in.pb.gz", SMALL)
    files = [source] if verb == "report" else [source, source]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, verb, *files, "-f", name], stdout=full, stderr=subprocess.PIPE, cwd=tmp_path
        )
    assert done.returncode == 9
    assert b"Standard output could not be written to: No space left" in done.stderr
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize("name", ANY_PROFILE)
def test_machine_readable_output_does_not_depend_on_the_locale(name: str, tmp_path: Path) -> None:
    source = save(tmp_path, "in.pb.gz", nasty())
    done = subprocess.run(
        [*COMMAND, "report", source, "-f", name],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )
    if name == "text":
        assert done.stdout.isascii()
    else:
        hide_idle = formats.hides_idle(name, None)
        profile = pprof.decode(source.read_bytes())
        assert done.stdout == formats.encode(profile, name, hide_idle=hide_idle)


def on_a_terminal(arguments: Sequence[str | Path]) -> tuple[int, bytes]:
    """Exit status and all that a terminal of 80 columns got."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    env.pop("NO_COLOR", None)
    child = subprocess.Popen(
        [*COMMAND, *map(str, arguments)], stdin=theirs, stdout=theirs, stderr=theirs, env=env
    )
    os.close(theirs)
    seen = b""
    with open(ours, "rb", buffering=0, closefd=True) as terminal:
        try:
            while data := terminal.read(1 << 16):
                seen += data
        except OSError:  # the other side is closed
            pass
    return child.wait(), seen


def test_a_terminal_gets_colour_and_harmless_names(tmp_path: Path) -> None:
    code, seen = on_a_terminal(["report", save(tmp_path, "in.pb.gz", nasty())])
    assert code == 0
    assert b"\x1b[1m" in seen
    plain = re.sub(rb"\x1b\[[0-9;]*m", b"", seen)
    assert b"\x1b" not in plain
    assert b"\x07" not in plain
    assert b"owned" in plain


def test_a_terminal_gets_no_binary(tmp_path: Path) -> None:
    code, seen = on_a_terminal(["report", save(tmp_path, "in.pb.gz", SMALL), "-f", "pprof"])
    assert code == 9
    assert b"not for a terminal" in seen


def test_a_profile_is_not_read_from_a_terminal() -> None:
    code, seen = on_a_terminal(["report", "-"])
    assert code == 2
    assert b"which is a terminal" in seen


def test_hidden_waits_are_reported_on_stderr(tmp_path: Path) -> None:
    source = save(tmp_path, "in.pb.gz", IDLE)
    done = run("report", source, "-f", "folded", "--hide-idle")
    assert done.returncode == 0
    assert b"worker" not in done.stdout
    assert done.stderr.decode().startswith("Hidden as idle: 700 ns in 7 waits")


@pytest.mark.parametrize("option", [["--hide-idle"], ["--sample-type", "delay"]])
@pytest.mark.parametrize("verb", ["report", "diff"])
def test_options_that_omit_samples_are_refused_for_pprof(
    verb: str, option: list[str], tmp_path: Path
) -> None:
    source = save(tmp_path, "in.pb.gz", IDLE)
    files = [source] * (2 if verb == "diff" else 1)
    said = refusal(verb, *files, "-f", "pprof", *option, code=2)
    assert "always have everything" in said


def test_files_that_are_not_profile_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text\x1b[31m").write_bytes(b"hello")
    (tmp_path / "cut.pb.gz").write_bytes(pprof.encode(SMALL)[:-20])
    (tmp_path / "secret").write_bytes(pprof.encode(SMALL))
    said = refusal("report", tmp_path / "text\x1b[31m", code=1)
    assert "malformed" in said
    assert "\x1b" not in said
    assert "ends too early" in refusal("report", tmp_path / "cut.pb.gz", code=1)
    assert "No such file" in refusal("report", tmp_path / "none", code=1)
    assert "Is a directory" in refusal("report", tmp_path, code=1)
    assert "more than 4194304 entries" in refusal("report", "/dev/zero", code=1)
    assert "empty" in refusal("report", "-", code=1)
    said = refusal("report", tmp_path / "secret", "--sample-type", "x\x1b[31m", code=1)
    assert "it has contentions, delay" in said
    assert "\x1b" not in said


def test_a_lack_of_memory_is_reported(tmp_path: Path) -> None:
    with open(tmp_path / "large", "wb") as file:
        file.truncate(200 << 20)
    limited = ["/usr/bin/prlimit", f"--as={120 << 20}", *COMMAND, "report", str(tmp_path / "large")]
    done = subprocess.run(limited, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"ebpfprof: Out of memory: ")


def test_diff_compares_recordings(tmp_path: Path) -> None:
    before = save(tmp_path, "a.pb.gz", replace(CPU, samples=CPU.samples[:1]))
    after = save(tmp_path, "b.pb.gz", CPU)
    text = output("diff", before, after)
    assert "+10 ns +33.3% new 0 ns 10 ns main.work" in rows(text)
    folded = output("diff", before, after, "-f", "folded")
    assert "main.work;sync.(*RWMutex).Lock;sync.(*Mutex).Lock 30 30" in folded.splitlines()
    assert json.loads(output("diff", before, after, "-f", "json"))["base"]["stacks"]
    assert 'id="base"' in output("diff", before, after, "-f", "html")


def test_diff_normalizes_and_hints_at_it(tmp_path: Path) -> None:
    base = save(tmp_path, "a.pb.gz", SMALL)
    doubled = [replace(s, values=(2 * s.values[0], 2 * s.values[1])) for s in SMALL.samples]
    longer = replace(SMALL, samples=tuple(doubled), duration_ns=2 * SMALL.duration_ns)
    later = save(tmp_path, "b.pb.gz", longer)
    done = run("diff", base, later)
    assert b"A was recorded for 30.0 s, B for 1.00 min: rates are compared; " in done.stderr
    assert "No place in the program differs." in done.stdout.decode()
    folded = run("diff", base, later, "-f", "folded")
    assert b"A was recorded for 30.0 s, B for 1.00 min: --per-second " in folded.stderr
    assert "No place in the program differs." in output("diff", base, later, "--normalize")
    done = run("diff", base, later, "--per-second")
    assert b"No place in the program differs." in done.stdout
    assert b"B for 1.00 min: B is scaled to the length of A.\n" in done.stderr
    assert "choose one" in refusal("diff", base, later, "--normalize", "--per-second", code=2)


@VERSIONS
def test_gos_pprof_shows_our_difference_like_its_own(minor: str, tmp_path: Path) -> None:
    before = save(tmp_path, "a.pb.gz", replace(CPU, samples=CPU.samples[:2]))
    after = save(tmp_path, "b.pb.gz", replace(CPU, samples=CPU.samples[1:]))
    done = run("diff", before, after, "-f", "pprof", "-o", "diff.pb.gz", cwd=tmp_path)
    assert done.returncode == 0
    go = toolchain(minor)
    ours = go.go("tool", "pprof", "-top", tmp_path / "diff.pb.gz")
    theirs = go.go("tool", "pprof", "-top", f"-diff_base={before}", after)
    found = [[row for row in rows(text) if "%" in row] for text in (ours, theirs)]
    assert found[0] == found[1]
    assert any(row.startswith("-30ns 75.00%") for row in found[0])


def test_profiles_of_different_kinds_are_refused(
    tmp_path: Path, own_profiles: dict[str, Path]
) -> None:
    block, cpu = save(tmp_path, "a.pb.gz", SMALL), save(tmp_path, "b.pb.gz", CPU)
    heap = save(tmp_path, "c.pb.gz", HEAP)
    mutex = own_profiles["1.27"] / "mutex.pb.gz"
    for one, two in ((block, cpu), (cpu, heap)):
        assert "only profiles of the same kind" in refusal("diff", one, two, code=1)
    assert "A is a block profile and B is a mutex profile" in refusal("diff", block, mutex, code=1)
    assert "Only one" in refusal("diff", "-", "-", code=2)
    assert "No such file" in refusal("diff", block, tmp_path / "none", code=1)


def test_an_empty_profile_can_be_compared_with_any_kind(
    tmp_path: Path, own_profiles: dict[str, Path]
) -> None:
    empty = save(tmp_path, "a.pb.gz", replace(SMALL, samples=()))
    mutex = own_profiles["1.27"] / "mutex.pb.gz"
    text = output("diff", empty, mutex)
    assert text.startswith("Releases of contended locks")
    assert "Mutex.Unlock" in text


@pytest.mark.parametrize("verb", ["report", "diff"])
def test_the_help_has_examples(verb: str) -> None:
    assert f"  ebpfprof {verb} " in output(verb, "--help").split("Examples:")[1]


def test_merged_files_with_lengths_are_a_heatmap_of_each_file(tmp_path: Path) -> None:
    minute_ns = 60_000_000_000
    files = []
    for number, ns in enumerate((1_000_000, 40_000_000)):
        sample = replace(SMALL.samples[0], values=(3, 3 * ns), lengths=WaitHistogram.of([ns] * 3))
        later = replace(SMALL, samples=(sample,), time_ns=SMALL.time_ns + number * minute_ns)
        files.append(tmp_path / f"{number}.pb.gz")
        files[-1].write_bytes(pprof.encode(later, keeps_lengths=True))
    page = tmp_path / "both.html"
    done = run("report", "--merge", *reversed(files), "-o", page)
    assert done.returncode == 0, done.stderr
    slices = json.JSONDecoder().raw_decode(page.read_text().split('"slices":', 1)[1])[0]
    (first, first_end), (second, _) = slices["times"]
    assert second - first == pytest.approx(60)
    assert first_end == pytest.approx(first + SMALL.duration_ns / 1e9)
    (cells,) = slices["cells"]
    found = [cells[at : at + 4] for at in range(0, len(cells), 4)]
    assert [(index, count) for index, _, count, _ in found] == [(0, 3), (1, 3)]
    assert [least <= ns for (_, least, *_), ns in zip(found, (1e6, 4e7), strict=True)] == [True] * 2
    assert found[1][1] > 30e6


def test_merged_cpu_profiles_are_a_pgo_file(tmp_path: Path) -> None:
    one = replace(CPU, samples=(Sample((LOCK, LOCK), (2, 20_000_000)),))
    file, both = save(tmp_path, "one.pb.gz", one), tmp_path / "default.pgo"
    done = run("report", "--merge", file, file, "-o", both)
    assert done.returncode == 0, done.stderr
    assert [each.values for each in pprof.decode(both.read_bytes()).samples] == [(4, 40_000_000)]
