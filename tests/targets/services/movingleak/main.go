// Movingleak starts a goroutine for each request that refreshes a session at each tick until its
// context ends. Nothing ends these contexts, so goroutines that move are more and more.
package main

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
)

type session struct{ refreshed atomic.Int64 }

//go:noinline
func (s *session) keepFresh(ctx context.Context) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.refreshed.Add(1)
		case <-ctx.Done():
			return
		}
	}
}

//go:noinline
func openSession() *session {
	ctx, cancel := context.WithCancel(context.Background())
	_ = cancel // the fault: it belongs to the end of the request
	s := &session{}
	go s.keepFresh(ctx)
	return s
}

func main() {
	service := traffic.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(20 * time.Millisecond)
		fmt.Fprint(w, openSession().refreshed.Load())
	}))
	traffic.Start(service, 1, 1000)
	harness.Poll(func() bool { return runtime.NumGoroutine() > 150 })
	harness.Ready()
	harness.AwaitEnd()
}
