package main

import (
	"net/http"
	"sync/atomic"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
)

// underLoad serves requests, sends them, and returns when a few are answered.
func underLoad(service http.Handler, loads ...traffic.Load) {
	var answered atomic.Int64
	url := traffic.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		service.ServeHTTP(w, r)
		answered.Add(1)
	}))
	traffic.Send(url, loads...)
	harness.Poll(func() bool { return answered.Load() > 20 })
}
