"""What an operation is called, and which frame is the program's own that called for it."""

from collections.abc import Sequence

import pytest

from ebpfprof.profile import operations
from ebpfprof.profile.model import Frame, Label, Location, Sample

X = "golang.org/x"
GRPC = "google.golang.org/grpc"


def frames(functions: Sequence[str]) -> list[Frame]:
    return [Frame(function, f"/src/{n}.go", 10 * n) for n, function in enumerate(functions, 1)]


# From the stacks that Go's own profiler records, leaf first.
@pytest.mark.parametrize(
    ("functions", "operation"),
    [
        (["runtime.chansend1", "main.f"], "chan send"),
        # From the park on, as goroutine profiles have it.
        (["runtime.gopark", "runtime.chanrecv", "runtime.chanrecv1", "main.f"], "chan receive"),
        (["runtime.gopark", "runtime.selectgo", "main.f"], "select"),
        (["runtime.gopark", "time.Sleep", "main.f"], "sleep"),
        (
            ["runtime.gopark", "runtime.netpollblock", "internal/poll.runtime_pollWait", "main.f"],
            "IO wait",
        ),
        (
            [
                *("runtime.gopark", "runtime.goparkunlock", "runtime.semacquire1"),
                *("internal/sync.runtime_SemacquireMutex", "internal/sync.(*Mutex).lockSlow"),
                *("internal/sync.(*Mutex).Lock", "sync.(*Mutex).Lock", "main.f"),
            ],
            "Mutex.Lock",
        ),
        (["runtime.gopark"], "runtime.gopark"),
        (["runtime.chanrecv1", "main.f"], "chan receive"),
        (["runtime.chanrecv2", "main.f"], "chan receive"),
        (["runtime.selectgo", "main.f"], "select"),
        (["runtime.selectgo", "reflect.rselect", "reflect.Select", "main.f"], "select"),
        (
            ["reflect.chanrecv", "reflect.Value.recv", "reflect.Value.Recv", "main.f"],
            "chan receive",
        ),
        (["reflect.chansend0", "reflect.chansend", "reflect.Value.send", "main.f"], "chan send"),
        (["reflect.chansend", "reflect.Value.send", "main.f"], "chan send"),
        (["sync.(*Mutex).Lock", "main.f"], "Mutex.Lock"),
        (["sync.(*Mutex).Lock", "sync.(*RWMutex).Lock", "main.f"], "RWMutex.Lock"),
        (["sync.(*RWMutex).Lock", "main.f"], "RWMutex.Lock"),
        (["sync.(*RWMutex).RLock", "main.f"], "RWMutex.RLock"),
        (["sync.(*WaitGroup).Wait", "main.f"], "WaitGroup.Wait"),
        (["sync.(*Cond).Wait", "main.f"], "Cond.Wait"),
        (
            [
                *("runtime.gopark", "runtime.goparkunlock", "sync.runtime_notifyListWait"),
                *("sync.(*Cond).Wait", "main.f"),
            ],
            "Cond.Wait",
        ),
        (
            [
                *("runtime.gopark", "runtime.selectgo"),
                f"{GRPC}/internal/transport.(*recvBufferReader).readClient",
                *(f"{GRPC}/internal/transport.(*Stream).Read", f"{GRPC}.(*parser).recvMsg"),
                *(f"{GRPC}.(*ClientConn).Invoke", "main.f"),
            ],
            "gRPC answer",
        ),
        (
            ["sync.(*Mutex).Lock", "sync.(*Once).doSlow", "sync.(*Once).Do", "main.f"],
            "Once.Do",
        ),
        (["internal/sync.(*HashTrieMap[...]).Swap", "sync.(*Map).Store", "main.f"], "Map.Store"),
        (["sync.(*Mutex).Lock", "main.f", "sync.(*Once).Do", "main.g"], "Mutex.Lock"),
        (["sync.OnceFunc.func1", "main.f"], "OnceFunc"),
        (
            ["internal/poll.(*fdMutex).rwlock", "internal/poll.(*FD).readLock", "os.(*File).Read"],
            "fd lock",
        ),
        (["sync.(*Mutex).Unlock", "main.f"], "Mutex.Unlock"),
        # Woken, it waits for the lock: not for the condition any more.
        (["sync.(*Mutex).Lock", "sync.(*Cond).Wait", "main.f"], "Mutex.Lock"),
        (
            ["sync.(*Mutex).Lock", "sync.(*RWMutex).Lock", "sync.(*Cond).Wait", "main.f"],
            "RWMutex.Lock",
        ),
        (["sync.(*RWMutex).RLock", "sync.(*rlocker).Lock", "main.f"], "RWMutex.RLock"),
        (["sync.(*RWMutex).RUnlock", "sync.(*rlocker).Unlock", "main.f"], "RWMutex.RUnlock"),
        (["sync.(*Mutex).Lock", "sync.(*Pool).pinSlow", "sync.(*Pool).Get", "main.f"], "Pool.Get"),
        (["sync.OnceValue[...].func1", "main.f"], "OnceValue"),
        (["sync.(*WaitGroup).Wait", f"{X}/sync/errgroup.(*Group).Wait", "main.f"], "errgroup Wait"),
        (["runtime.chansend1", f"{X}/sync/errgroup.(*Group).Go", "main.f"], "errgroup Go"),
        (
            ["runtime.selectgo", f"{X}/sync/semaphore.(*Weighted).Acquire", "main.f"],
            "semaphore Acquire",
        ),
        (["runtime.selectgo", "net/http.(*persistConn).roundTrip", "main.f"], "HTTP answer"),
        (["sync.(*Mutex).Lock", "net/http.(*persistConn).closed", "main.f"], "Mutex.Lock"),
        (["runtime.selectgo", "main.f", "net/http.(*persistConn).roundTrip"], "select"),
        (["net/http.(*persistConn).roundTrip", "main.f"], "net/http.(*persistConn).roundTrip"),
        (["runtime.newthing", "main.f"], "runtime.newthing"),
        (["example.com/sync.(*Mutex).Lock", "main.f"], "example.com/sync.(*Mutex).Lock"),
        (["main.f"], "main.f"),
        ([], "[unknown]"),
    ],
)
def test_operations_are_named_as_a_programmer_would(functions: list[str], operation: str) -> None:
    assert operations.operation(frames(functions)) == operation


@pytest.mark.parametrize(
    ("functions", "caller"),
    [
        (["runtime.selectgo", "reflect.rselect", "reflect.Select", "main.f", "main.g"], "main.f"),
        (["sync.(*Mutex).Lock", "internal/poll.(*FD).Read", "os.(*File).Read"], "os.(*File).Read"),
        (["sync.(*Mutex).Lock", "internal/sync.x", "internal/runtime/maps.y", "a.b"], "a.b"),
        (["sync.(*Mutex).Lock", "sync/atomic.x", "runtime/trace.y", "net/http.z"], "net/http.z"),
        (["runtime.chanrecv1", "github.com/a/internal/b.F", "main.f"], "github.com/a/internal/b.F"),
        (["runtime.chanrecv1", "sync.example.com/x.F", "main.f"], "sync.example.com/x.F"),
        (["runtime.chanrecv1", "synchro.F", "main.f"], "synchro.F"),
        # What the operation is called says it all of the package's own frames.
        (
            [
                "runtime.selectgo",
                "net/http.(*persistConn).roundTrip",
                "net/http.(*Transport).RoundTrip",
                "net/http.(*Client).Get",
                "main.f",
                "net/http.HandlerFunc.ServeHTTP",
            ],
            "main.f",
        ),
        (
            ["runtime.selectgo", "net/http.(*Transport).getConn", "net/http/httputil.x", "main.f"],
            "net/http/httputil.x",
        ),
        (["sync.(*WaitGroup).Wait", f"{X}/sync/errgroup.(*Group).Wait", "main.f"], "main.f"),
        (["runtime.selectgo", "io.(*pipe).read", "io.(*PipeReader).Read", "bufio.f"], "bufio.f"),
        (["runtime.selectgo", "io.(*pipe).read", "iox.Read"], "iox.Read"),
        (["runtime.selectgo", "io.(*pipe).read", "io.(*PipeReader).Read"], "io.(*pipe).read"),
        (["sync.(*Pool[go.shape.int]).x", "main.G[go.shape.int]"], "main.G[go.shape.int]"),
        # The slash is the type parameter's.
        (["internal/sync.(*HashTrieMap[a.com/b.T]).x", "main.f"], "main.f"),
        (["sync.(*Map[example.com/x.T]).Load", "main.f"], "main.f"),
        # All of it Go's own: the outermost says most.
        (["runtime.chanrecv1", "runtime.bgsweep", "runtime.goexit"], "runtime.goexit"),
        ([], "[unknown]"),
    ],
)
def test_the_caller_is_the_first_frame_outside_of_gos_inside(
    functions: list[str], caller: str
) -> None:
    assert operations.caller(frames(functions)).function == caller


def test_io_is_called_by_the_innermost_frame_outside_of_gos_library() -> None:
    def found(*functions: str) -> str:
        return operations.caller_outside_library(frames(functions)).function

    assert found("runtime.x", "net/http.(*conn).serve", "main.f", "main.g") == "main.f"
    assert found("runtime.x", "net/http.(*conn).serve", "runtime.goexit") == "runtime.goexit"
    assert found() == "[unknown]"


def test_a_call_of_c_is_named_after_its_function() -> None:
    leaf = "runtime.cgocall"
    for names, name, caller in (
        (("main._Cfunc_locate", "main.(*finder).locate", "main.serve"), "C locate", 3),
        (("net._C2func_getaddrinfo", "net._C_getaddrinfo", "net.f", "main.f"), "C getaddrinfo", 5),
        (("main.f",), "C", 2),
    ):
        stack = frames([leaf, *names])
        locations = tuple(Location(0, None, (frame,)) for frame in stack)
        sample = Sample(locations, (1, 1), (Label(operations.STATE, "syscall"),))
        assert operations.operation_of(sample) == (name, stack[caller - 1])


@pytest.mark.parametrize(
    ("function", "is_its"),
    [
        ("main.(*Shop).checkout", True),
        ("example.com/shop.New", True),
        ("example.com/shop/cart.(*Cart).Add[...]", True),
        ("example.com/shop/v2%2e1.Add", True),
        ("example.com/shopping.Add", False),
        ("net/http.(*conn).serve", False),
    ],
)
def test_a_function_belongs_to_the_program_by_its_module(function: str, is_its: bool) -> None:
    assert operations.is_of_program(function, "example.com/shop") == is_its


def test_without_a_module_only_package_main_belongs_to_the_program() -> None:
    assert operations.is_of_program("main.main", "")
    assert not operations.is_of_program("example.com/shop.New", "")
