"""Which function handled a request: on stacks of real servers, and on made-up ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import pytest

from ebpfprof.profile.handlers import (
    HANDLER,
    OTHER_HANDLERS,
    HandlerLabels,
    frameworks,
    handler_in,
    handler_label,
    handler_names,
    is_in_request,
    is_of_request,
    of_handler,
    with_handlers,
)
from ebpfprof.profile.lock_labels import lock_labels, without_locks
from ebpfprof.profile.model import Frame, Label, Location, Profile, Sample
from ebpfprof.profile.wakers import WOKEN_BY
from ebpfprof.profilers.registry import kind_named
from tests.handlers.stacks import FRAMEWORKS, saved_stacks

CONN: Final = "net/http.(*conn).serve"
SERVER: Final = ("net/http.serverHandler.ServeHTTP", CONN)
FUNC: Final = "net/http.HandlerFunc.ServeHTTP"
MUX: Final = "net/http.(*ServeMux).ServeHTTP"
LOCK: Final = "sync.(*Mutex).Lock"
REFLECTION: Final = (
    *("runtime.call16", "runtime.reflectcall", "reflect.Value.call", "reflect.Value.Call"),
)
GIN: Final = "github.com/gin-gonic/gin"


def frames(*functions: str) -> list[Frame]:
    return [Frame(name, "/src/shop/routes.go", 50 + n, 41) for n, name in enumerate(functions)]


def sample(*functions: str, labels: tuple[Label, ...] = (), value: int = 10) -> Sample:
    return sample_of(frames(*functions), labels, value)


def sample_of(stack: Sequence[Frame], labels: tuple[Label, ...] = (), value: int = 10) -> Sample:
    locations = tuple(Location(n + 1, None, (frame,)) for n, frame in enumerate(stack))
    return Sample(locations, (1, value), labels)


def profile(*samples: Sample, kind: str = "block") -> Profile:
    return kind_named(kind).make_profile(samples, [], time_ns=1, duration_ns=2)


def labels_of(*samples: Sample) -> list[str | None]:
    (labelled,) = with_handlers([profile(*samples)])
    return [handler_label(each) for each in labelled.samples]


# By framework: the handlers of /checkout, /closure, /group/stock and /spawn.
HANDLERS: Final = {
    "nethttp": ("(*shop).serveCheckout", "serveNetHTTP.func1", "(*shop).serveStock"),
    "chi": ("(*shop).serveCheckout", "serveChi.func1", "(*shop).serveStock"),
    "gorilla": ("(*shop).serveCheckout", "serveGorilla.func1", "(*shop).serveStock"),
    "httprouter": ("(*shop).routerCheckout", "serveHTTPRouter.func1", "(*shop).serveStock"),
    "gin": ("(*shop).ginCheckout", "serveGin.func2", "(*shop).ginStock"),
    "echo": ("(*shop).echoCheckout", "serveEcho.func1", "(*shop).echoStock"),
    "fiber": ("(*shop).fiberCheckout", "serveFiber.func2", "(*shop).fiberStock"),
    "grpc": ("health.Check", "health.Check", "health.Watch"),
    "connect": ("(*shop).connectCheckout", "serveConnect.func2", "(*shop).connectStock"),
    "netrpc": ("Shop.Checkout", "(*Shop).Closure", "(*Shop).Stock"),
    # Its middleware calls a handler that publishes with nothing between them.
    "watermill": ("(*shop).receiveCheckout", "serveWatermill.func2", "serveWatermill.func1.1"),
}
SPAWN: Final = {
    **dict.fromkeys(("nethttp", "chi", "gorilla", "httprouter"), "(*shop).serveSpawn"),
    **{"gin": "(*shop).ginSpawn", "echo": "(*shop).echoSpawn", "fiber": "(*shop).fiberSpawn"},
    **{"grpc": "health.Check", "connect": "(*shop).connectSpawn", "netrpc": "(*Shop).Spawn"},
    "watermill": "(*shop).receiveSpawn",
}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_handlers_of_real_servers(framework: str) -> None:
    expected = Counter(f"main.{name}" for name in (*HANDLERS[framework], SPAWN[framework]))
    # Two goroutines were started by the handler, or by a function that it called. Go's tracebacks
    # lack the wrapper of `go s.prices(done)`.
    is_starter = SPAWN[framework] == "(*shop).serveSpawn"
    expected[f"main.{SPAWN[framework]}" if is_starter else "none"] += 1
    expected["none"] += 1
    found = labels_of(*map(sample_of, saved_stacks(framework)))
    assert Counter((label or "none").split(": ")[0] for label in found) == expected


def test_middleware_is_no_handler_but_where_it_waits_itself() -> None:
    logged = ("main.logged.func1", FUNC, MUX, *SERVER)
    below = frames(LOCK, "main.(*shop).checkout", FUNC, *logged)
    assert handler_in(below) == ("main.(*shop).checkout", "main.(*shop).checkout", "")
    waits = handler_in(frames(LOCK, *logged))
    assert waits == ("main.logged.func1 (routes.go:41)", "main.logged.func1", "")


@pytest.mark.parametrize(
    ("functions", "name"),
    [
        # A method of any type, called by middleware of others or by the server.
        ((LOCK, "main.(*api).ServeHTTP", *SERVER), "main.(*api).ServeHTTP"),
        (
            (LOCK, "main.(*api).ServeHTTP", "example.com/otel.(*Handler).ServeHTTP", *SERVER),
            "main.(*api).ServeHTTP",
        ),
        ((LOCK, "main.(*api).ServeHTTP.func1", "main.(*api).ServeHTTP"), "main.(*api).ServeHTTP"),
        # What the compiler makes of a method with a value receiver, which calls that.
        ((LOCK, "main.api.Get", "main.(*api).Get", FUNC, *SERVER), "main.api.Get"),
        ((LOCK, "main.api.ServeHTTP", "main.(*api).ServeHTTP", *SERVER), "main.api.ServeHTTP"),
        ((LOCK, "main.(*api).get", "main.(*api).Get", FUNC, *SERVER), "main.(*api).Get"),
        # Called by reflection.
        (
            (LOCK, "main.Arith.Add", *REFLECTION, "net/rpc.(*service).call"),
            "main.Arith.Add",
        ),
        # Handlers of Go's library.
        (
            ("syscall.Read", "net/http.(*fileHandler).ServeHTTP", *SERVER),
            "net/http.(*fileHandler).ServeHTTP",
        ),
        (("time.Sleep", "net/http/pprof.Profile", FUNC, MUX, *SERVER), "net/http/pprof.Profile"),
        # The framework itself: routing, writing the answer, its own middleware.
        ((LOCK, "sync.(*RWMutex).RLock", MUX, *SERVER), "[net/http]"),
        ((MUX, *SERVER), "[net/http]"),
        ((LOCK, f"{GIN}.LoggerWithConfig.func1", f"{GIN}.(*Context).Next"), "[gin]"),
        (("bufio.(*Reader).Peek", "github.com/valyala/fasthttp.(*Server).serveConn"), "[fasthttp]"),
        # Generic functions, and packages with dots or versions in their paths.
        (("main.list[go.shape.int]", FUNC), "main.list[...]"),
        (("example.com/api/v2.(*Server[...]).Get", FUNC), "example.com/api/v2.(*Server[...]).Get"),
        (("gopkg.in/shop%2ev1.Serve", FUNC), "gopkg.in/shop.v1.Serve"),
        (("main.(*shop).checkout-fm", "main.(*shop).checkout-fm", FUNC), "[net/http]"),
    ],
)
def test_names_of_handlers(functions: tuple[str, ...], name: str) -> None:
    found = handler_in(frames(*functions))
    assert found is not None
    assert found.name == name


def test_a_stack_without_a_framework_has_no_handler() -> None:
    assert handler_in(frames(LOCK, "main.worker")) is None
    assert handler_in(frames("internal/poll.(*FD).Read", CONN)) is None
    assert handler_in([]) is None


def test_goroutines_belong_to_the_handler_in_which_they_were_started() -> None:
    serve = "main.(*shop).serve"
    group = "golang.org/x/sync/errgroup.(*Group).Go.func1"
    starters = [
        (LOCK, f"{serve}.func1"),
        (LOCK, f"{serve}.func2.1"),
        (LOCK, "main.refresh", f"{serve}.gowrap1"),
        (LOCK, "main.refresh", f"{serve}·dwrap·3"),
        (LOCK, f"{serve}.func1", group),
        (LOCK, "main.each", f"{serve}-range1"),
    ]
    others = [(LOCK, "main.refresh"), (LOCK, "main.(*shop).serveAll.func1"), (LOCK, group)]
    stacks = [(LOCK, serve, FUNC), *starters, *others]
    expected = [serve] * 7 + [None] * 3
    assert labels_of(*(sample(*stack) for stack in stacks)) == expected
    # Without the handler on any stack, nobody knows that it is one.
    assert labels_of(sample(*starters[0])) == [None]


def test_profiles_of_one_program_share_what_they_show_of_handlers() -> None:
    serve = "main.(*shop).serve"
    block = profile(sample(LOCK, f"{serve}.func1"))
    cpu = profile(sample("main.parse", serve, FUNC), kind="cpu")
    assert [handler_names(each) for each in with_handlers([block, cpu])] == [[serve], [serve]]


def test_a_stack_that_was_cut_off_belongs_to_the_handler_on_it() -> None:
    serve = "main.(*shop).serve"
    deep = (LOCK, *(f"main.f{n}" for n in range(30)), serve)
    shallow = (LOCK, "main.f", serve, "main.main")
    stacks = [sample(LOCK, serve, FUNC), sample(*deep), sample(*shallow)]
    assert labels_of(*stacks) == [serve, serve, None]


def test_of_a_pair_it_is_the_handler_that_waited() -> None:
    waiter, waker = sample(LOCK, "main.a", FUNC), sample(LOCK, "main.b", FUNC)
    pair = Sample((*waiter.locations, WOKEN_BY, *waker.locations), (1, 10))
    assert labels_of(pair) == ["main.a"]


def test_labels_of_locks_stay_behind_all_others() -> None:
    locked = sample(LOCK, "main.a", FUNC, labels=lock_labels("main.mu", 0x1000))
    (labelled,) = with_handlers([profile(locked)])
    (found,) = without_locks(labelled).samples
    assert found.labels == (Label(HANDLER, "main.a"),)


def test_a_label_of_the_program_stays() -> None:
    own = sample(LOCK, "main.a", FUNC, labels=(Label(HANDLER, "POST /checkout"),))
    assert labels_of(own) == ["POST /checkout"]


def test_what_one_handler_did() -> None:
    stacks = sample(LOCK, "main.a", FUNC), sample(LOCK, "main.b", FUNC), sample(LOCK, "main.c")
    (labelled,) = with_handlers([profile(*stacks)])
    assert handler_names(labelled) == ["main.a", "main.b"]
    assert [handler_label(each) for each in of_handler(labelled, "n.b").samples] == ["main.b"]
    assert of_handler(labelled, "main.c").samples == ()
    assert len(of_handler(labelled, "").samples) == 2


def test_clients_wait_below_handlers_of_requests_only() -> None:
    assert is_in_request(frames(LOCK, "main.a", FUNC))
    assert is_in_request(frames(LOCK, f"{GIN}.(*Context).Next"))
    assert is_in_request(frames(LOCK, "main.(*api).ServeHTTP.func1"))
    # A consumer of sarama is called once, and waits for messages itself.
    claim = "github.com/IBM/sarama.(*consumerGroupSession).consume"
    assert not is_in_request(frames("runtime.chanrecv2", "main.(*c).ConsumeClaim", claim))
    assert handler_in(frames("runtime.chanrecv2", "main.(*c).ConsumeClaim", claim)) is not None
    assert not is_in_request(frames(LOCK, CONN))


def test_goroutines_that_run_are_of_requests_by_their_first_function() -> None:
    assert is_of_request(sample("[running: no stack]", CONN))
    assert not is_of_request(sample("[running: no stack]", "main.worker"))
    assert not is_of_request(sample("main.f", CONN))


def test_goroutines_are_of_requests_by_a_handler_on_their_stack() -> None:
    assert is_of_request(sample(LOCK, "main.a", FUNC))
    assert not is_of_request(sample(LOCK, "main.a"))


def test_each_framework_is_complete() -> None:
    names = [framework.name for framework in frameworks()]
    assert len(set(names)) == len(names)
    for framework in frameworks():
        assert framework.calls
        assert framework.packages


def names_in(labels: HandlerLabels, *samples: Sample, **routes: str) -> list[str | None]:
    (labelled,) = labels.labelled([profile(*samples)], {f"main.{k}": v for k, v in routes.items()})
    return [handler_label(each) for each in labelled.samples]


def test_a_handler_that_was_seen_before_is_known_later() -> None:
    labels = HandlerLabels()
    started = sample(LOCK, "main.checkout.func1")
    assert names_in(labels, started) == [None]
    assert names_in(labels, sample("main.checkout", FUNC, *SERVER)) == ["main.checkout"]
    assert names_in(labels, started) == ["main.checkout"]
    assert names_in(labels, started, checkout="GET /x") == ["main.checkout: GET /x"]


def test_only_so_many_handlers_have_names_of_their_own() -> None:
    labels = HandlerLabels(2)
    small, large, middle = (
        sample(name, FUNC, *SERVER, value=value)
        for name, value in (("main.small", 1), ("main.large", 9), ("main.middle", 5))
    )
    known = {"small": "GET /s", "large": "GET /l"}
    first = [OTHER_HANDLERS, "main.large: GET /l", "main.middle"]
    assert names_in(labels, small, large, middle, **known) == first
    # Those that have a name keep it; goroutines that the others start are theirs.
    assert names_in(labels, small, sample(LOCK, "main.small.func1")) == [OTHER_HANDLERS] * 2
    assert names_in(labels, sample(GIN + ".(*Engine).ServeHTTP", *SERVER)) == ["[gin]"]


UNARY: Final = "shop/pb._Shop_Checkout_Handler"
GRPC: Final = "google.golang.org/grpc.(*Server).handleStream"


def test_handlers_of_grpc_have_the_service_and_the_method() -> None:
    wrapped = f"{UNARY}.func1", "main.serve.func1", UNARY, GRPC
    labels = labels_of(
        sample(LOCK, "main.(*shop).Checkout", *wrapped),
        sample("runtime.chanrecv1", "main.(*shop).Checkout.func1"),
        sample(LOCK, "main.(*shop).Stock_At", "shop/pb._Shop_V1_Stock_At_Handler", GRPC),
        sample(LOCK, "main.logged", *wrapped),  # an interceptor that waits itself
        sample(LOCK, "main.page.ServeHTTP", FUNC, "main.(*shop).Page", *wrapped),
        sample(LOCK, GRPC),
    )
    checkout = "main.(*shop).Checkout: Shop/Checkout"
    stock = "main.(*shop).Stock_At: Shop_V1/Stock_At"
    interceptor = "main.logged: Shop/Checkout"
    assert labels == [checkout, checkout, stock, interceptor, "main.page.ServeHTTP", "[gRPC]"]


def test_a_function_of_several_methods_of_grpc_has_only_its_name() -> None:
    several = [
        sample(LOCK, "main.serve", f"shop/pb._Shop_{name}_Handler", GRPC)
        for name in ("Checkout", "Stock", "Checkout")
    ]
    assert labels_of(*several) == ["main.serve"] * 3


def test_a_path_that_was_read_is_the_route_of_a_handler_of_grpc() -> None:
    called = profile(sample(LOCK, "main.(*shop).Checkout", UNARY, GRPC))
    (labelled,) = with_handlers([called], {"main.(*shop).Checkout": "POST /shop.Shop/Checkout"})
    assert handler_names(labelled) == ["main.(*shop).Checkout: POST /shop.Shop/Checkout"]


def test_the_methods_of_a_real_server_of_grpc() -> None:
    labels = {label or "" for label in labels_of(*map(sample_of, saved_stacks("grpc")))}
    assert labels == {"", "main.health.Check: Health/Check", "main.health.Watch: Health/Watch"}
