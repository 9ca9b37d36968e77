package main

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
)

// A dashboard is refreshed by a goroutine of its own until its context ends. Nothing ends these
// contexts: there is one more for each request, and all of them move.
type dashboard struct {
	widgets   string
	refreshes atomic.Int64
}

//go:noinline
func (d *dashboard) refresh(ctx context.Context) {
	ticker := time.NewTicker(300 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			d.refreshes.Add(1)
		case <-ctx.Done():
			return
		}
	}
}

type dashboardServer struct{ database *sql.DB }

//go:noinline
func (s *dashboardServer) open(r *http.Request) (*dashboard, error) {
	widgets, err := query(r.Context(), s.database, "10ms SELECT widgets FROM dashboards")
	opened := &dashboard{widgets: widgets}
	go opened.refresh(context.Background()) // the fault: it outlives the request
	return opened, err
}

//go:noinline
func (s *dashboardServer) serveDashboard(w http.ResponseWriter, r *http.Request) {
	opened, err := s.open(r)
	reply(w, fmt.Sprint(opened.widgets, opened.refreshes.Load()), err)
}

func serveDashboards() {
	service := &dashboardServer{database: openDatabase(20)}
	url := traffic.Serve(http.HandlerFunc(service.serveDashboard))
	traffic.Send(url, traffic.Load{Path: "/dashboard", PerSecond: 40})
	harness.Poll(func() bool { return runtime.NumGoroutine() > 60 })
}

func init() { register("tickerleak", serveDashboards) }
