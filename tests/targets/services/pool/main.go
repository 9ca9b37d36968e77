// Pool serves orders with a pool of two connections, which is a channel, for forty clients.
package main

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
)

const queryTime = 10 * time.Millisecond

type connection struct{ queries atomic.Int64 }

type connectionPool struct{ free chan *connection }

//go:noinline
func (p *connectionPool) acquire() *connection { return <-p.free }

//go:noinline
func (p *connectionPool) release(c *connection) { p.free <- c }

//go:noinline
func (c *connection) query() int64 {
	time.Sleep(queryTime)
	return c.queries.Add(1)
}

func main() {
	pool := &connectionPool{free: make(chan *connection, 2)}
	for i := 0; i < cap(pool.free); i++ {
		pool.release(&connection{})
	}
	var orders atomic.Int64
	service := traffic.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := pool.acquire()
		defer pool.release(c)
		fmt.Fprint(w, c.query())
		orders.Add(1)
	}))
	traffic.Start(service, 40, 1000)
	harness.Poll(func() bool { return orders.Load() > 20 })
	harness.Ready()
	harness.AwaitEnd()
}
