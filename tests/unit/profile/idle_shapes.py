"""Examples of the rules for any program, which go by the shape of a stack: see idle_examples."""

from typing import Final

from tests.unit.profile.idle_examples import (
    COND,
    CONN,
    FOREVER,
    JOIN,
    LOCK,
    MAIN,
    RECEIVE,
    RECEIVE_OK,
    SELECT,
    SEND,
    Stack,
)

SHAPES: Final[dict[str, tuple[list[Stack], list[Stack]]]] = {
    "main goroutine": (
        [
            (RECEIVE, *MAIN),
            (SELECT, *MAIN),
            (JOIN, *MAIN),
            (COND, *MAIN),
            (JOIN, "golang.org/x/sync/errgroup.(*Group).Wait", "main.run", *MAIN),
            (RECEIVE, "main.waitForSignal", *MAIN),
        ],
        [
            (SEND, *MAIN),
            (LOCK, *MAIN),
            (RECEIVE, "main.convert", *MAIN),
            (RECEIVE, "main.(*Runner).Run", *MAIN),
            (SELECT, "example.com/db.(*Client).Wait", *MAIN),
            (SELECT, "example.com/db.(*Client).Run", *MAIN),
            (RECEIVE, "main.run", "main.convert", *MAIN),
            (RECEIVE, "main.main.func1", *MAIN),
            (RECEIVE, "main.run", "runtime.doInit1", "runtime.main"),
            # Not the main goroutine.
            (JOIN, "main.main"),
            (JOIN, "main.(*Server).run"),
        ],
    ),
    "main goroutine that stays": (
        [(FOREVER, *MAIN), (FOREVER, *(f"main.f{n}" for n in range(9)), *MAIN)],
        # Any other goroutine leaks there.
        [(FOREVER, "main.worker"), (SELECT, "main.f", "main.g", *MAIN)],
    ),
    "worker waiting for work": (
        [
            (RECEIVE_OK, "main.worker"),
            (RECEIVE_OK, "main.(*Pool).startWorker"),
            (RECEIVE, "main.(*InvoicePool).work"),
            (RECEIVE, "main.(*InvoicePool).work", "main.main.func2"),
            (RECEIVE, "main.(*InvoicePool).work", "main.main.gowrap1"),
            (RECEIVE, "main.(*InvoicePool).work", "main.main·dwrap·1"),
            (RECEIVE, "main.(*Pool).work", "main.(*Pool).work-fm"),
            (RECEIVE, "main.main.func1"),
            (RECEIVE, "main.init.0.func1"),
            (RECEIVE_OK, "example.com/pool/v3.NewPool[...].func1"),
            (RECEIVE_OK, "example.com/pool.NewPool[a[b],c[d[e]]].func1"),
            (RECEIVE_OK, "example.com/pool.(*Pool[go.shape.*[]int]).Start.func12"),
            (RECEIVE, "main.main.NewPool.func1"),
            (RECEIVE, "main.main.(*Pool).Start.func1"),
            (RECEIVE, "main.(*JobRunner).run"),
            (RECEIVE, "main.messageLoop"),
            (COND, "main.(*Queue).dispatcher"),
            (RECEIVE, "main.main.func1", "sync.(*WaitGroup).Go.func1"),
            (RECEIVE, "main.worker.func1", "runtime/pprof.Do", "main.worker"),
            ("reflect.chanrecv", "reflect.Value.recv", "reflect.Value.Recv", "main.pollLoop"),
        ],
        [
            # The receiver is too slow.
            (SEND, "main.worker"),
            ("reflect.chansend0", "main.worker"),
            (LOCK, "main.worker"),
            # A worker at work.
            (RECEIVE, "main.(*Client).Call", "main.worker"),
            (RECEIVE, "main.acquire", "main.main.func1"),
            (RECEIVE, "main.(*Pool).get", "main.(*Pool).Start.func1"),
            (RECEIVE, "main.worker", "main.outer", "main.main.func1"),
            (RECEIVE, "main.worker", "main.handle"),
            (RECEIVE, "main.worker", "main.(*Shop).Checkout.func1"),
            # Goroutines for one task: it is not known what they wait for.
            (RECEIVE, "main.reserve"),
            (RECEIVE, "main.(*Shop).Checkout.func1"),
            (RECEIVE, "main.(*Shop).handleOrder.func1"),
            (RECEIVE, "main.startJob.func1"),
            (RECEIVE, "main.handleOrder.NewPool.func1"),
            (RECEIVE, "main.runQuery"),
            (RECEIVE, "main.(*Job).run"),
            (RECEIVE, "main.(*Job).Run.func1"),
            (RECEIVE, "main.fetchWorkers.func1"),
            (RECEIVE, "main.orderWriter"),
            (RECEIVE, "main.(*Runner).Run.func1"),
            (RECEIVE, "main.(*Runner).Run.func1", "sync.(*WaitGroup).Go.func1"),
            (RECEIVE, "main.(*Upload).run"),
            # Started by a worker, for what it works on.
            (RECEIVE, "main.(*Pool).worker.func1"),
            (RECEIVE, "main.eventLoop.func2"),
            # Perhaps a handler that was written down in main.
            (RECEIVE, "main.main.func1.1"),
            (RECEIVE, "main.main.func1.2.1"),
            (RECEIVE, "main.glob..func1"),
            # Below a handler, or started by one.
            (RECEIVE, "main.(*Server).ServeHTTP", "net/http.serverHandler.ServeHTTP", CONN),
            (RECEIVE, "main.(*Server).ServeHTTP.func1"),
            (RECEIVE, "main.main.func1", "net/http.HandlerFunc.ServeHTTP", CONN),
            (RECEIVE, "main.worker.func1", "runtime/pprof.Do", "main.handle"),
            (RECEIVE, "main.worker", "runtime/pprof.Do", "main.worker"),
            # The end of the stack is not known.
            (RECEIVE, "main.worker", ""),
            (RECEIVE, ""),
            (RECEIVE,),
        ],
    ),
    "loop waiting in a select": (
        [
            (SELECT, "main.(*Hub).run"),
            (SELECT, "main.(*Client).writePump"),
            (SELECT, "main.main.func3"),
            (SELECT, "main.run.func2", "golang.org/x/sync/errgroup.(*Group).Go.func1"),
            (SELECT, "reflect.rselect", "reflect.Select", "main.(*Mux).eventLoop"),
            (SELECT, "main.(*Cache).janitor", "main.NewCache.func1"),
        ],
        [
            (SELECT, "main.(*Client).Call"),
            (SELECT, "main.(*Client).Do", "main.(*Hub).run"),
            (SELECT, "main.(*Limiter).Wait", "main.worker"),
            (SELECT, "golang.org/x/time/rate.(*Limiter).wait", "main.worker"),
            (SELECT, "main.(*Semaphore).acquire"),
            (SELECT, "main.(*H).ServeHTTP", "main.(*Server).loop"),
            ("runtime.selectnbsend", "main.(*Hub).run"),
        ],
    ),
}
