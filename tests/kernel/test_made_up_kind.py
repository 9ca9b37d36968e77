"""A made-up kind of profile, registered in one file, works wherever the others do."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebpfprof.export import pprof
from ebpfprof.profile.model import Profile
from tests.kernel import made_up_kind
from tests.kernel.made_up_kind import KIND
from tests.kernel.programs import program
from tests.server.serving import Server
from tests.targets_run import Target
from tests.tools.rooms import ROOT

COMMAND = (sys.executable, str(Path(made_up_kind.__file__)))
NS_EACH = 7_000_000


@pytest.fixture
def target() -> Iterator[Target]:
    with Target.start(program("ticker")) as running:
        yield running


def output_of(*arguments: str, folder: Path) -> str:
    """What the command prints, both streams, of a run that must go well."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def recorded(folder: Path, target: Target, name: str, *options: str) -> str:
    pid = str(target.pid)
    how = ("--pid", pid, "--profile", KIND.name, "--duration", "0.3", "-o", name)
    return output_of("attach", *how, *options, folder=folder)


def of_file(path: Path) -> Profile:
    # The registry of this process does not know the kind, whose file is a profile like any other.
    return pprof.decode(path.read_bytes())


def test_the_made_up_kind_is_named_nowhere_else() -> None:
    sources = [path for name in ("ebpfprof", "bpf") for path in (ROOT / name).rglob("*.*")]
    texts = [
        source.read_text().replace("from textual.widgets import", "")
        for source in sources
        if source.suffix in (".py", ".js", ".html", ".toml")
    ]
    assert len(texts) > 100
    assert not any("widget" in text.lower() for text in texts)


def test_help_shows_the_kind_and_its_option(tmp_path: Path) -> None:
    for verb in ("attach", "run", "top", "serve"):
        text = " ".join(output_of(verb, "--help-all", folder=tmp_path).split())
        known = (
            "block, mutex, wakers, runqueue, cpu, wall, goroutine, heap, allocs, threads, "
            "threadcreate, widgets"
        )
        assert known in text, verb
        assert "--widget-size SIZE How large widgets are." in text, verb


def test_attach_records_the_kind(target: Target, tmp_path: Path) -> None:
    text = recorded(tmp_path, target, "one.pb.gz")
    assert f"recording {KIND.name} profile of process {target.pid} (ticker) for 0.3 s" in text
    heading, table = text.split("\n\n")[1].split("\n", 1)
    assert heading.startswith(f"Widgets of process {target.pid} (ticker) in ")
    assert "main.throw" in table
    found = of_file(tmp_path / "one.pb.gz")
    assert found.sample_types == KIND.sample_types
    assert f"{KIND.title} profile of process {target.pid} (ticker" in found.comments[0]
    assert found.comments[0].endswith("widgets of size 7")
    ((count, ns),) = [sample.values for sample in found.samples]
    assert count > 0
    assert ns == NS_EACH * count


def test_the_option_needs_the_kind(target: Target, tmp_path: Path) -> None:
    recorded(tmp_path, target, "large.pb.gz", "--widget-size", "11")
    ((count, ns),) = [sample.values for sample in of_file(tmp_path / "large.pb.gz").samples]
    assert ns == 11_000_000 * count
    arguments = ("attach", "--pid", str(target.pid), "--profile", "cpu", "--widget-size", "11")
    refused = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "--widget-size needs the widgets profile, which is not recorded" in refused.stderr


@pytest.mark.full
def test_the_file_is_named_by_the_kind(target: Target, tmp_path: Path) -> None:
    how = ("--pid", str(target.pid), "--duration", "0.1")
    output_of("attach", *how, folder=tmp_path)
    kinds = sorted(path.name.split(".")[1] for path in tmp_path.iterdir())
    assert kinds == ["block", "cpu", "mutex", "widgets"]


@pytest.mark.full
def test_report_shows_the_kind_in_each_format(target: Target, tmp_path: Path) -> None:
    recorded(tmp_path, target, "one.pb.gz")
    text = output_of("report", "one.pb.gz", folder=tmp_path)
    assert re.match(r"\d+ % of all widgets: main.throw itself, [^\n]+\n\nWidgets in ", text)
    assert "main.throw" in text
    document = json.loads(
        output_of("report", "one.pb.gz", "-f", "json", "-o", "-", folder=tmp_path)
    )
    assert document["kind"] == KIND.name
    assert document["title"].startswith(KIND.subject)
    assert [each["type"] for each in document["sample_types"]] == ["widgets", "throwing"]
    assert "main.throw" in output_of(
        "report", "one.pb.gz", "-f", "folded", "-o", "-", folder=tmp_path
    )


@pytest.mark.full
def test_diff_compares_profiles_of_the_kind(target: Target, tmp_path: Path) -> None:
    recorded(tmp_path, target, "one.pb.gz", "--widget-size", "1")
    recorded(tmp_path, target, "two.pb.gz", "--widget-size", "99")
    text = output_of("diff", "one.pb.gz", "two.pb.gz", folder=tmp_path)
    assert "\nWidgets: " in f"\n{text}"
    assert "More:" in text
    assert "main.throw" in text


@pytest.mark.full
def test_top_has_a_view_of_the_kind(target: Target, tmp_path: Path) -> None:
    how = ("--pid", str(target.pid), "--profile", KIND.name, "--once", "--interval", "0.3")
    text = output_of("top", *how, folder=tmp_path)
    header, *table = text.splitlines()
    assert f"  {KIND.title}  " in header
    assert "main.throw" in "\n".join(table)


@pytest.mark.full
def test_serve_answers_shows_and_counts_the_kind(target: Target) -> None:
    serve = (*COMMAND, "serve", "--max-overhead", "0", "--profile", KIND.name)
    with Server("--pid", str(target.pid), command=serve) as server:
        index = server.get("/debug/pprof/").body.decode()
        assert "Widgets that were thrown" in index
        (sample,) = of_body(server.get("/debug/pprof/widgets?seconds=1").body).samples
        count, ns = sample.values
        assert 0 < ns == NS_EACH * count
        of_body(server.get("/debug/pprof/widgets").body)
        of_body(server.get("/debug/pprof/delta_widgets").body)
        targets = json.loads(server.get("/api/targets").body)
        (kind,) = [each for each in targets["kinds"] if each["name"] == KIND.name]
        assert KIND.summary in kind.values()
        assert KIND.name in targets["targets"][0]["kinds"]
        page = json.loads(server.get(f"/api/targets/{target.pid}/profile?kind={KIND.name}").body)
        assert page["kind"] == KIND.name
        metrics = server.get("/metrics").body.decode()
        assert f'kind="{KIND.name}"' in metrics
        assert "ebpfprof_throwing_seconds_total{" in metrics


def of_body(body: bytes) -> Profile:
    found = pprof.decode(body)
    assert found.sample_types == KIND.sample_types
    return found
