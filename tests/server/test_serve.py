"""The command: which clients it answers, when probes are in a process, how it ends."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from time import monotonic, sleep

import pytest

from ebpfprof.commands.serve import _say_ready
from ebpfprof.continuous.manager import Manager
from ebpfprof.errors import ExitCode
from ebpfprof.server.access import Policy
from ebpfprof.server.listener import Address
from tests.builds import in_full
from tests.continuous.fakes import ALL_KINDS, PID, FakeLive, FakeTarget
from tests.kernel.kernel_state import await_no_probes, bpf_objects, has_probes
from tests.kernel.programs import program
from tests.kernel.users import ANYBODYS_PYTHON, NOBODY
from tests.server.serving import (
    COMMAND,
    DEADLINE_S,
    Server,
    UnixConnection,
    ask,
    await_probes,
    httppprof,
)
from tests.targets_run import Target

# Where it doesn't matter what is recorded: it starts in half the time.
BLOCK = ("--profile", "block")
# Where nothing is.
READ = ("--profile", "goroutine")
TOKEN = "a-token-of-some-length"
INVOKING = 1234


@pytest.fixture
def target() -> Iterator[Target]:
    with httppprof("1.27") as (running, _):
        try:
            yield running
        finally:
            running.kill()  # it may be another program by now, which would go on


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Target, Server]]:
    """For tests that ask for no sums, which record for minutes afterwards."""
    invoking = {"SUDO_UID": str(INVOKING), "SUDO_GID": str(INVOKING)}
    with (
        httppprof("1.27") as (running, _),
        Server("--pid", str(running.pid), env=invoking) as server,
    ):
        assert server.ready
        yield running, server


def begun(address: str, path: str) -> socket.socket:
    """A connection on which something was asked for, and not yet answered."""
    host, port = address.rsplit(":", 1)
    made = socket.create_connection((host, int(port)))
    made.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return made


@pytest.mark.parametrize("path", [*in_full("profile?seconds=600"), "block?seconds=600"])
def test_probes_are_detached_when_the_client_hangs_up(
    served: tuple[Target, Server], path: str
) -> None:
    target, server = served
    await_probes(target.pid, False)  # those of an answer just given may be on their way out
    with closing(begun(server.address, f"/debug/pprof/{path}")):
        await_probes(target.pid, True)
        await_true(lambda: recording(server) == [True])
    await_probes(target.pid, False)
    assert recording(server) == [False]


def recording(server: Server) -> list[bool]:
    found = json.loads(server.get("/api/targets").body)
    return [each["recording"] for each in found["targets"]]


def test_ten_clients_are_answered_at_once(target: Target) -> None:
    paths = ["block?seconds=1", "mutex?seconds=1", "profile?seconds=1", "mutex", "block"] * 2
    with Server("--pid", str(target.pid)) as server:
        assert server.ready
        with ThreadPoolExecutor(10) as pool:
            answers = list(pool.map(lambda path: server.get(f"/debug/pprof/{path}"), paths))
        metrics = server.get("/metrics").body.decode()
    for answer, path in zip(answers, paths, strict=True):
        kind = path.partition("?")[0]
        assert answer.profile("cpu" if kind == "profile" else "block").samples or (
            kind == "profile"
        )
    assert re.search(
        r'^ebpfprof_requests_total\{code="200",endpoint="mutex"\} 4.0$', metrics, re.MULTILINE
    )


@pytest.mark.parametrize(
    ("number", "name"), [*in_full((signal.SIGINT, "profile")), (signal.SIGTERM, "block")]
)
def test_at_a_signal_serve_answers_and_leaves_no_probe(
    target: Target, number: signal.Signals, name: str
) -> None:
    kind = "cpu" if name == "profile" else name
    with Server("--pid", str(target.pid), "--profile", kind) as server:
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(server.get, f"/debug/pprof/{name}?seconds=600")
            await_true(lambda: recording(server) == [True])
            server.send(number)
            answer = asked.result()
        assert answer.profile(kind).duration_ns > 0
        assert server.finish() == 0
        # Another test may have a process beside this one that does not answer.
        said = [line for line in server.said.splitlines() if "is left out" not in line]
        assert not any("ebpfprof:" in line or "Traceback" in line for line in said), said
    assert not has_probes(target.pid)


@pytest.mark.parametrize("number", [*in_full(signal.SIGINT), signal.SIGTERM, signal.SIGKILL])
def test_serve_continuous_leaves_no_probe_however_it_ends(
    target: Target, number: signal.Signals
) -> None:
    with Server("--pid", str(target.pid), "--continuous", *BLOCK) as server:
        assert server.ready
        await_probes(target.pid, True)
        assert bpf_objects(server.pid)
        server.send(number)
        assert server.finish() == (-number if number == signal.SIGKILL else 0)
    if number == signal.SIGKILL:
        await_no_probes(target.pid)
    assert not has_probes(target.pid)


def test_when_a_process_ends_the_other_is_still_served(target: Target) -> None:
    with (
        httppprof("1.19") as (other, _),
        Server("--pid", f"{target.pid},{other.pid}", "--profile", "block,mutex") as server,
    ):
        with ThreadPoolExecutor(1) as pool:
            block = f"/proc/{target.pid}/debug/pprof/block?seconds=600"
            asked = pool.submit(server.get, block)
            # A process that ends before its last probe is attached was never recorded.
            await_true(lambda: True in recording(server))
            target.say("exec")
            assert asked.result().profile("block").duration_ns > 0
        for path in ("block?seconds=1", "profile", "cmdline", ""):
            answer = server.get(f"/proc/{target.pid}/debug/pprof/{path}")
            assert (answer.status, answer.headers["x-go-pprof"]) == (404, "1")
            assert b"replaced itself by another program (exec)" in answer.body
        assert server.get(f"/proc/{other.pid}/debug/pprof/mutex?seconds=1").status == 200
        # It is the only one left: it needs no prefix any more.
        assert server.get("/debug/pprof/mutex?seconds=1").status == 200
        server.send(signal.SIGINT)
        assert server.finish() == 0


@pytest.mark.parametrize(
    ("follows", "kinds", "name"),
    [(False, ALL_KINDS, "block"), (True, ALL_KINDS, "block"), (False, ("cpu",), "profile")],
)
def test_the_printed_address_stays_right(
    follows: bool, kinds: tuple[str, ...], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --all-go other processes may start, and then the address must name one."""
    manager = Manager(FakeLive(), kinds=kinds)
    manager.add_opened(FakeTarget(PID, kinds=kinds))
    _say_ready(manager, Address("127.0.0.1", 0), 6060, Policy(), None, follows)
    prefix = f"/proc/{PID}" if follows else ""
    url = f"http://127.0.0.1:6060{prefix}/debug/pprof/{name}?seconds=5"
    assert f"Next: go tool pprof '{url}'\n" in capsys.readouterr().err


def test_all_go_serves_processes_as_they_start() -> None:
    with Server("--all-go", *BLOCK) as server, httppprof("1.27") as (late, _):
        assert server.ready

        def pids() -> list[int]:
            return [each["pid"] for each in json.loads(server.get("/api/targets").body)["targets"]]

        await_true(lambda: late.pid in pids())
        answer = server.get(f"/proc/{late.pid}/debug/pprof/block?seconds=1")
        assert answer.profile("block").samples


def await_true(condition: Callable[[], bool]) -> None:
    until = monotonic() + DEADLINE_S
    while not condition():
        assert monotonic() < until, "it never was so"
        sleep(0.02)


# Asks as another user, and prints the status and the body.
ASK = """
import http.client, sys
connection = http.client.HTTPConnection(sys.argv[1], timeout=60)
connection.request("GET", sys.argv[2], headers={"X-Forwarded-For": sys.argv[3]})
answer = connection.getresponse()
print(answer.status, answer.read().decode(), end="")
"""


def ask_as(uid: int, address: str, path: str, forwarded_for: str = "") -> str:
    command = [*ANYBODYS_PYTHON, "-c", ASK, address, path, forwarded_for]
    done = subprocess.run(command, user=uid, capture_output=True, text=True, check=True)
    return done.stdout


def test_on_loopback_only_root_and_the_invoking_user_are_answered(
    served: tuple[Target, Server],
) -> None:
    _, server = served
    for uid in (0, INVOKING):
        assert ask_as(uid, server.address, "/debug/pprof/cmdline").startswith("200 ")
    for path in ("/debug/pprof/cmdline", "/", "/metrics", "/api/targets", "/assets/page.js"):
        refusal = ask_as(NOBODY, server.address, path)
        assert refusal.startswith("403 ")
        assert "--token-file" in refusal
        assert "httppprof" not in refusal
    host = ask(server.address, "/metrics", headers={"Host": "evil.example"})
    assert host.status == 403
    # A header makes no client another user.
    assert ask_as(NOBODY, server.address, "/metrics", "127.0.0.1").startswith("403 ")


# Fills the places of a server: silent connections, half a request, some that were refused.
CROWD = """
import socket, sys
host, port = sys.argv[1].split(":")
half = b"GET /metrics HTTP/1.1\\r\\nHost: localhost\\r\\n"
crowd = []
for said in (b"", half, half + b"\\r\\n") * 120:
    crowd.append(socket.create_connection((host, int(port))))
    crowd[-1].sendall(said)
print("ready", flush=True)
sys.stdin.read()
"""


def test_connections_of_other_users_do_not_keep_root_out(served: tuple[Target, Server]) -> None:
    _, server = served
    with subprocess.Popen(
        [*ANYBODYS_PYTHON, "-c", CROWD, server.address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        user=NOBODY,
    ) as crowd:
        assert crowd.stdout is not None
        assert crowd.stdout.readline() == "ready\n"
        assert server.get("/debug/pprof/cmdline").status == 200
        assert server.get("/debug/pprof/block?seconds=1").status == 200
        crowd.communicate()


def test_a_token_is_required(target: Target, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    arguments = ("--pid", str(target.pid), *READ, "--token-file", str(file))
    with Server(*arguments, listen="0.0.0.0:0") as server:
        address = server.address
        assert "//0.0.0.0" not in server.ready
        assert f" and http://{socket.gethostname()}:" in server.ready
        assert TOKEN not in server.ready
        path = "/debug/pprof/cmdline"
        assert ask(address, path).status == 401
        assert ask(address, f"{path}?token=wrong").status == 401
        assert ask(address, f"{path}?token={TOKEN}").status == 200
        assert ask_as(NOBODY, address, f"{path}?token={TOKEN}").startswith("200 ")
        bearer = {"Authorization": f"Bearer {TOKEN}", "Host": "profiler.example"}
        assert ask(address, path, headers=bearer).status == 200


def test_serve_makes_and_prints_a_token(target: Target) -> None:
    with Server("--pid", str(target.pid), *READ, "--token", "auto") as server:
        match = re.search(r"http://\S+/\?token=(\S{32});", server.ready)
        assert match is not None
        assert server.get(f"/debug/pprof/cmdline?token={match[1]}").status == 200
        assert server.get("/debug/pprof/cmdline").status == 401


@pytest.mark.full
def test_serve_answers_on_a_unix_socket(target: Target, tmp_path: Path) -> None:
    path = tmp_path / "s"
    invoking = {"SUDO_UID": "1234", "SUDO_GID": "1234"}
    with Server("--pid", str(target.pid), *BLOCK, env=invoking, listen=f"unix:{path}") as server:
        assert f"unix:{path}" in server.ready
        found = path.stat()
        assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (1234, 0o600)
        assert ask(path, "/debug/pprof/block?seconds=1").profile("block").samples
        connection = UnixConnection(path)
        connection.connect()
        connection.close()
        server.send(signal.SIGTERM)
        assert server.finish() == 0
    assert not path.exists()


def run(*arguments: str) -> tuple[int, str]:
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def test_a_port_in_use_is_an_error(target: Target) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        code, said = run("--pid", str(target.pid), "--listen", where)
    assert code == ExitCode.FAILURE
    assert said == (
        f"ebpfprof: Cannot listen at {where}: something listens there already. End it, or choose "
        "another port with --listen (port 0 takes one that is free).\n"
    )


def test_a_process_that_does_not_exist_is_an_error() -> None:
    code, said = run("--pid", "4194400", "--listen", "127.0.0.1:0")
    assert code == ExitCode.NO_SUCH_PROCESS
    assert "4194400" in said


def test_a_program_that_is_not_go_has_a_cpu_profile_only() -> None:
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        try:
            pid = str(sleeper.pid)
            code, said = run("--pid", pid, "--listen", "127.0.0.1:0", "--profile", "block")
            assert code == ExitCode.NOT_GO_PROGRAM
            assert "sleep" in said
            with Server("--pid", pid) as server:
                page = server.get("/debug/pprof/").body.decode()
                assert re.findall(r"\?debug=1'>(\w+)<", page) == ["cmdline", "profile", "symbol"]
                assert server.get("/debug/pprof/block").status == 404
                assert server.get("/debug/pprof/cmdline").body == b"sleep\x00600"
        finally:
            sleeper.kill()


@pytest.mark.full
def test_names_with_markup_stay_text(tmp_path: Path) -> None:
    hostile = tmp_path / "<img src=x>&'\"\x1b[31m"
    hostile.write_bytes(program("httppprof").read_bytes())
    hostile.chmod(0o755)
    with Target.start(hostile) as odd, Server("--pid", str(odd.pid), *BLOCK) as server:
        page = server.get("/debug/pprof/").body
        assert b"<img" not in page
        assert server.get("/api/targets").headers["content-type"] == "application/json"
        assert ask(server.address, "/metrics").status == 200
        assert "\x1b" not in server.said


def test_a_terminal_sees_what_it_does_while_it_starts(target: Target) -> None:
    leader, follower = pty.openpty()
    command = [*COMMAND, "--listen", "127.0.0.1:0", "--pid", str(target.pid)]
    with (
        open(leader, "rb", buffering=0) as terminal,
        open(follower, "wb", buffering=0) as stderr,
        subprocess.Popen(command, stderr=stderr, env=os.environ | {"TERM": "xterm"}) as server,
    ):
        said = b""
        while b"serving " not in said:
            assert server.poll() is None
            said += terminal.read(4096)
        server.terminate()
    assert b"Compiling the probes ..." in said
    assert f"Reading process {target.pid} (1 of 1) ...".encode() in said
