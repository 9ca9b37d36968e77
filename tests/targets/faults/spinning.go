package main

import (
	"database/sql"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"ebpfprof.test/harness/traffic"
)

// A configReloader asks a flag without a pause whether the configuration has to be read again.
type configReloader struct {
	isStale  atomic.Bool
	version  atomic.Int64
	settings *sql.DB
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
	row, err := query(r.Context(), c.settings, "2ms SELECT value FROM settings")
	reply(w, fmt.Sprint(row, c.version.Load()), err)
}

func init() { register("spinning", serveConfiguration) }

func serveConfiguration() {
	reloader := &configReloader{settings: openDatabase(50)}
	go reloader.run()
	go func() {
		for range time.Tick(time.Second) {
			reloader.isStale.Store(true)
		}
	}()
	underLoad(reloader, traffic.Load{PerSecond: 200})
}
