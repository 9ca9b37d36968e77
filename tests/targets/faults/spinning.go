package main

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"ebpfprof.test/harness/traffic"
)

// A configReloader asks a flag without a pause whether the configuration has to be read again.
type configReloader struct {
	isStale atomic.Bool
	version atomic.Int64
}

//go:noinline
func (c *configReloader) run() {
	for {
		if c.isStale.Load() {
			c.version.Add(1)
			c.isStale.Store(false)
		}
	}
}

func (c *configReloader) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	time.Sleep(2 * time.Millisecond) // what the service asks others
	fmt.Fprint(w, c.version.Load())
}

func init() { register("spinning", spinning) }

func spinning() {
	reloader := &configReloader{}
	go reloader.run()
	go func() {
		for range time.Tick(time.Second) {
			reloader.isStale.Store(true)
		}
	}()
	underLoad(reloader, traffic.Load{PerSecond: 200})
}
