"""Stacks of waits, leaf first: idle ones of each rule, and some that only look like them."""

from typing import Final

RECEIVE: Final = "runtime.chanrecv1"
RECEIVE_OK: Final = "runtime.chanrecv2"
SELECT: Final = "runtime.selectgo"
SEND: Final = "runtime.chansend1"
COND: Final = "sync.(*Cond).Wait"
JOIN: Final = "sync.(*WaitGroup).Wait"
LOCK: Final = "sync.(*Mutex).Lock"
IO: Final = "internal/poll.runtime_pollWait"
FOREVER: Final = "runtime.block"
SIGNAL: Final = "runtime.notetsleepg"
POLL: Final = ("internal/poll.(*pollDesc).wait", "internal/poll.(*pollDesc).waitRead")
READ: Final = (IO, *POLL, "internal/poll.(*FD).Read", "net.(*netFD).Read", "net.(*conn).Read")
LINE: Final = ("net/textproto.(*Reader).readLineSlice", "net/textproto.(*Reader).ReadLine")
PEEK: Final = ("bufio.(*Reader).fill", "bufio.(*Reader).Peek")
MAIN: Final = ("main.main", "runtime.main")
CONN: Final = "net/http.(*conn).serve"
GRPC: Final = "google.golang.org/grpc"
TRANSPORT: Final = f"{GRPC}/internal/transport"
ETCD: Final = "go.etcd.io/etcd/server/v3"
PROMETHEUS: Final = "github.com/prometheus/prometheus"
K8S: Final = "k8s.io/client-go"

Stack = tuple[str, ...]

# By rule: stacks that are idle by it, leaf first, and stacks that it must leave alone.
EXAMPLES: Final[dict[str, tuple[list[Stack], list[Stack]]]] = {
    "Go's runtime": (
        [(SELECT, "runtime.ensureSigM.func1"), (RECEIVE, "runtime.gcenable", "runtime.main")],
        [
            # A finalizer that waits holds up all others.
            (RECEIVE, "main.finalize", "runtime.runfinq"),
            (LOCK, "runtime.bgsweep"),
            (SELECT, "runtimex.com/a.F"),
        ],
    ),
    "signals": (
        [(SELECT, "os/signal.NotifyContext.func1")],
        [(SELECT, "main.onSignal", "os/signal.NotifyContext.func1")],
    ),
    "receiving signals": (
        [(SIGNAL, "os/signal.signal_recv", "os/signal.loop")],
        [(SIGNAL, "runtime.main"), (SIGNAL, "main.signal_recv", "os/signal.loop")],
    ),
    "accepting connections": (
        [
            (
                *(IO, *POLL, "internal/poll.(*FD).Accept", "net.(*netFD).accept"),
                *("net.(*TCPListener).accept", "net.(*TCPListener).Accept"),
                *("net/http.(*Server).Serve", "net/http.Serve", "main.main.func1"),
            ),
        ],
        # A handler that waits until somebody connects.
        [
            (IO, *POLL, "internal/poll.(*FD).Accept", "main.passive", "main.(*Ftp).ServeHTTP"),
            (IO, *POLL, "internal/poll.(*FD).Connect", "net.(*netFD).connect", "main.worker"),
        ],
    ),
    "idle HTTP connection": (
        [
            (*READ, "net/http.(*connReader).Read", *PEEK, CONN, "net/http.(*Server).Serve.gowrap3"),
            (*READ, "crypto/tls.(*Conn).Read", "net/http.(*connReader).Read", *PEEK, CONN),
            (*READ, "main.(*counted).Read", "net/http.(*connReader).Read", *PEEK, CONN),
            (*READ, *LINE, "net/http.readRequest", "net/http.(*conn).readRequest", CONN),
        ],
        [
            # A slow request.
            (*READ, *LINE, "net/textproto.readMIMEHeader", "net/http.readRequest", CONN),
            (*READ, *PEEK, "net/http.(*chunkedReader).Read", "main.(*Api).ServeHTTP", CONN),
            (*READ, *PEEK, "main.readFrame", CONN),
            (*READ, *PEEK, CONN, "main.(*Proxy).ServeHTTP", CONN),
            (SELECT, *PEEK, CONN),
        ],
    ),
    "watching a client": (
        [
            (*READ, "net/http.(*connReader).backgroundRead"),
            (COND, "net/http.(*connReader).abortPendingRead", "net/http.(*response).x", CONN),
        ],
        [
            (LOCK, "net/http.(*connReader).abortPendingRead", CONN),
            (COND, "net/http.(*connReader).abortPendingRead", "main.(*Api).ServeHTTP", CONN),
        ],
    ),
    "reading answers": (
        [
            (*READ, "net/http.(*persistConn).Read", *PEEK, "net/http.(*persistConn).readLoop"),
            (*READ, "bufio.(*Reader).Read", "net/http.(*http2clientConnReadLoop).run"),
            (*READ, "bufio.(*Reader).Read", f"{TRANSPORT}.(*http2Client).reader"),
        ],
        [
            # The body of an answer, and an answer of a database.
            (*READ, *PEEK, "net/http.(*body).Read", "main.fetch", *MAIN),
            (*READ, "github.com/lib/pq.(*conn).recv", "database/sql.(*DB).query", "main.worker"),
            (LOCK, "net/http.(*http2clientConnReadLoop).run"),
        ],
    ),
    "reading requests": (
        [
            (*READ, "io.ReadFull", "net/http.(*http2serverConn).readFrames"),
            (*READ, "bufio.(*Reader).Read", f"{TRANSPORT}.(*http2Server).HandleStreams"),
        ],
        [(*READ, "main.(*stream).Read", f"{GRPC}.(*Server).processUnaryRPC")],
    ),
    "watching a context": (
        [
            (SELECT, "context.(*cancelCtx).propagateCancel.func2"),
            (SELECT, "net/http.setRequestCancel.func4"),
            (RECEIVE, "database/sql.(*Tx).awaitDone"),
            (SELECT, "os/exec.(*Cmd).watchCtx.func1"),
            (SELECT, f"{GRPC}.newClientStreamWithParams.func4"),
        ],
        [
            # Waits for an answer, a process, a connection.
            (SELECT, "net/http.(*persistConn).roundTrip", "main.fetch", *MAIN),
            (RECEIVE, "os/exec.(*Cmd).Wait", "main.convert", "main.main.func1"),
            (SELECT, "net.(*netFD).connect", "net.(*netFD).dial", "main.worker"),
            (SELECT, "main.query", "database/sql.(*Tx).awaitDone"),
        ],
    ),
    "HTTP client connection": (
        [
            (SELECT, "net/http.(*persistConn).writeLoop"),
            (SELECT, "net/http.(*persistConn).readLoop", "net/http.(*Transport).dialConn.gowrap2"),
            (RECEIVE, "net/http.(*persistConn).readLoop"),
        ],
        [
            (SELECT, "net/http.(*persistConn).roundTrip", "net/http.(*Transport).roundTrip"),
            (SELECT, "net/http.(*Transport).getConn", "net/http.(*Transport).roundTrip"),
            (SEND, "net/http.(*persistConn).readLoop"),
            (SELECT, "net/http.(*persistConn).writeLoop", "main.dump"),
        ],
    ),
    "HTTP/2 server connection": (
        [
            (
                SELECT,
                "net/http.(*http2serverConn).serve",
                "net/http.(*http2Server).serveConn",
                CONN,
            ),
            (SELECT, "golang.org/x/net/http2.(*serverConn).serve", "main.serve", "main.main.func1"),
            (SELECT, "net/http/internal/http2.(*serverConn).serve", CONN),
        ],
        [
            (COND, "net/http.(*http2pipe).Read", "main.read", "net/http.(*http2serverConn).serve"),
            (SELECT, "net/http.(*http2serverConn).writeDataFromHandler", "main.(*H).ServeHTTP"),
        ],
    ),
    "HTTP/2 frame reader": (
        [
            (SELECT, "net/http.(*http2serverConn).readFrames"),
            (SELECT, "net/http/internal/http2.(*serverConn).readFrames"),
        ],
        [(SELECT, "net/http.(*http2clientStream).writeRequest", "net/http.(*x).doRequest")],
    ),
    "connections of database/sql": (
        [
            (SELECT, "database/sql.(*DB).connectionOpener"),
            (SELECT, "database/sql.(*DB).connectionOpener", "database/sql.OpenDB.gowrap1"),
            (SELECT, "database/sql.(*DB).connectionCleaner"),
        ],
        [
            # The pool is exhausted.
            (SELECT, "database/sql.(*DB).conn", "database/sql.(*DB).query", "main.worker"),
            (SELECT, "database/sql.(*DB).conn"),
            (COND, "database/sql.(*DB).connectionOpener"),
        ],
    ),
    "gRPC connection": (
        [
            (
                SELECT,
                f"{TRANSPORT}.(*controlBuffer).get",
                f"{TRANSPORT}.(*loopyWriter).run",
                f"{TRANSPORT}.newHTTP2Client.func6",
            ),
            (SELECT, f"{TRANSPORT}.(*http2Server).keepalive"),
            (COND, f"{TRANSPORT}.(*http2Client).keepalive"),
            (SELECT, f"{GRPC}/internal/grpcsync.(*CallbackSerializer).run"),
            (RECEIVE, f"{GRPC}.(*Server).serverWorker"),
        ],
        [
            # A call waits for its answer.
            (SELECT, f"{TRANSPORT}.(*recvBufferReader).readClient", "main.call", *MAIN),
            # Too much to send.
            (SELECT, f"{TRANSPORT}.(*controlBuffer).throttle", f"{TRANSPORT}.(*http2Server).x"),
            (SELECT, f"{TRANSPORT}.(*controlBuffer).get", "main.call", *MAIN),
        ],
    ),
    "telemetry and logging": (
        [
            (SELECT, "go.opencensus.io/stats/view.(*worker).start"),
            (
                SELECT,
                "go.opentelemetry.io/otel/sdk/trace.(*batchSpanProcessor).processQueue",
                "go.opentelemetry.io/otel/sdk/trace.NewBatchSpanProcessor.func1",
            ),
            (RECEIVE_OK, "k8s.io/klog/v2.(*loggingT).flushDaemon"),
            (SELECT, "github.com/golang/glog.(*fileSink).flushDaemon"),
            (RECEIVE_OK, "gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"),
            (SELECT, "go.uber.org/zap/zapcore.(*BufferedWriteSyncer).flushLoop"),
        ],
        [
            (LOCK, "github.com/golang/glog.(*loggingT).output", "main.worker"),
            (SELECT, "go.opentelemetry.io/otel/sdk/trace.(*batchSpanProcessor).ForceFlush", *MAIN),
        ],
    ),
    "Kubernetes client": (
        [
            (
                COND,
                f"{K8S}/util/workqueue.(*Typed[go.shape.struct {{ x.Y string; z [4]int }}]).Get",
                "main.(*Controller).processNext",
                "main.(*Controller).work",
                "k8s.io/apimachinery/pkg/util/wait.BackoffUntil",
            ),
            (COND, f"{K8S}/util/workqueue.(*Type).Get", "main.x", "main.y"),
            (SELECT, f"{K8S}/tools/cache.(*processorListener).pop"),
        ],
        [
            (LOCK, f"{K8S}/util/workqueue.(*Type).Get", "main.x"),
            (JOIN, f"{K8S}/util/workqueue.(*Type).Get", "main.x"),
            (COND, f"{K8S}/util/workqueue.(*Type).ShutDownWithDrain", "main.x"),
            (COND, f"{K8S}/util/workqueue.(*Type).Get", "main.(*Handler).ServeHTTP", CONN),
        ],
    ),
    "etcd": (
        [
            (SELECT, f"{ETCD}/etcdserver/api/v3rpc.monitorLeader.func1"),
            (
                *(SELECT, f"{ETCD}/etcdserver.(*EtcdServer).linearizableReadLoop"),
                f"{ETCD}/etcdserver.(*EtcdServer).GoAttach.func1",
            ),
            (SELECT, "go.etcd.io/etcd/client/pkg/v3/fileutil.purgeFile.func1"),
            (RECEIVE, "go.etcd.io/etcd/pkg/v3/osutil.HandleInterrupts.func1"),
            (SELECT, "github.com/soheilhy/cmux.muxListener.Accept", "net/http.(*Server).Serve"),
        ],
        [
            # A read that waits for its index, a proposal that waits to be applied.
            (SELECT, f"{ETCD}/etcdserver.(*EtcdServer).linearizableReadNotify", "main.f"),
            (SELECT, f"{ETCD}/etcdserver.(*EtcdServer).requestCurrentIndex", "main.f"),
            (SEND, f"{ETCD}/etcdserver/api/v3rpc.(*serverWatchStream).sendLoop"),
        ],
    ),
    "Prometheus": (
        [
            (SELECT, f"{PROMETHEUS}/rules.(*Group).run", f"{PROMETHEUS}/rules.(*Manager).x.func1"),
            (SELECT, f"{PROMETHEUS}/discovery.(*Manager).sender"),
            (SELECT, f"{PROMETHEUS}/web.(*Handler).Run", "main.main.func22"),
        ],
        [
            (LOCK, f"{PROMETHEUS}/rules.(*Group).run"),
            (RECEIVE, f"{PROMETHEUS}/scrape.(*scrapePool).sync", "main.f"),
        ],
    ),
    "group of goroutines": (
        [(RECEIVE, "github.com/oklog/run.(*Group).Run", *MAIN)],
        [(JOIN, "github.com/oklog/run.(*Group).Run", "main.f", *MAIN)],
    ),
    "Caddy": (
        [
            (RECEIVE, "github.com/caddyserver/caddy/v2.trapSignalsPosix.func1"),
            (
                SELECT,
                "github.com/caddyserver/caddy/v2/modules/caddytls.(*TLS).keepStorageClean.func1",
            ),
            (SELECT, "github.com/caddyserver/certmagic.(*Cache).maintainAssets"),
        ],
        [(SELECT, "github.com/caddyserver/certmagic.(*Config).obtainCert", "main.f")],
    ),
    "build servers": (
        [
            (RECEIVE, "github.com/evanw/esbuild/pkg/cli.serveImpl", "main.main.func3", *MAIN),
            (RECEIVE_OK, "github.com/gohugoio/hugo/hugolib.(*Site).errorCollator"),
            (
                RECEIVE,
                "github.com/microsoft/typescript-go/internal/fswatch.(*debounce).latchWait",
                "github.com/microsoft/typescript-go/internal/fswatch.(*debounce).loop",
            ),
        ],
        [(JOIN, "github.com/evanw/esbuild/pkg/cli.serveImpl", "main.build", *MAIN)],
    ),
    "build servers that stay": (
        [
            (
                SELECT,
                "github.com/gohugoio/hugo/commands.(*serverCommand).serve.func5",
                "github.com/gohugoio/hugo/commands.(*serverCommand).serve",
                "main.run",
                *MAIN,
            ),
            (
                SELECT,
                "github.com/microsoft/typescript-go/internal/execute/watchmanager"
                ".(*WatchManager).RunLoop",
                "main.run",
                *MAIN,
            ),
        ],
        [
            (SELECT, "github.com/gohugoio/hugo/commands.(*serverCommand).serve", "main.f", *MAIN),
            (
                RECEIVE,
                "github.com/gohugoio/hugo/commands.(*serverCommand).serve.func5",
                "main.run",
                "main.build",
                *MAIN,
            ),
        ],
    ),
    "gRPC connection that is tried again": (
        [
            (
                SELECT,
                "google.golang.org/grpc.(*addrConn).resetTransport",
                "google.golang.org/grpc.(*addrConn).connect",
                "main.f",
            ),
            (SELECT, "google.golang.org/grpc.(*addrConn).resetTransportAndUnlock", "main.f"),
        ],
        [(LOCK, "google.golang.org/grpc.(*addrConn).resetTransport", "main.f")],
    ),
}
