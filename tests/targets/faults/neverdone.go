package main

import (
	"context"
	"database/sql"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ebpfprof.test/harness/traffic"
)

// A reporter reads the sections of a report side by side. A section without rows returns before it
// calls Done, so its request waits for ever.
type reporter struct {
	database *sql.DB
	reports  atomic.Int64
}

//go:noinline
func (p *reporter) section(ctx context.Context, text *string, done *sync.WaitGroup) {
	row, err := query(ctx, p.database, "8ms SELECT revenue")
	if err != nil || *text == "" {
		return
	}
	*text += row
	done.Done()
}

//go:noinline
func (p *reporter) report(r *http.Request) string {
	sections := []string{"north", "south", "west"}
	if keyOf(r)%10 == 0 {
		sections[1] = ""
	}
	var done sync.WaitGroup
	done.Add(len(sections))
	for i := range sections {
		go p.section(r.Context(), &sections[i], &done)
	}
	done.Wait()
	p.reports.Add(1)
	return strings.Join(sections, "\n")
}

//go:noinline
func (p *reporter) serveReport(w http.ResponseWriter, r *http.Request) {
	reply(w, p.report(r), nil)
}

func serveReports() {
	service := &reporter{database: openDatabase(20)}
	url := traffic.Serve(http.HandlerFunc(service.serveReport))
	traffic.Send(url, traffic.Load{Path: "/report", PerSecond: 40, Timeout: 3 * time.Second})
	awaitCount(&service.reports, 30)
}

func init() { register("neverdone", serveReports) }
