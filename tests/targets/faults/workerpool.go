package main

import (
	"context"
	"database/sql"
	"net/http"

	"ebpfprof.test/harness/traffic"
)

// A labelPrinter has ten workers, of which nearly nine are busy: few requests wait for one.
type labelPrinter struct {
	jobs     chan *labelJob
	database *sql.DB
}

type labelJob struct {
	text chan string
}

//go:noinline
func (p *labelPrinter) work() {
	for job := range p.jobs {
		row, _ := query(context.Background(), p.database, "20ms SELECT * FROM labels")
		job.text <- row
	}
}

//go:noinline
func (p *labelPrinter) serveLabel(w http.ResponseWriter, r *http.Request) {
	job := &labelJob{text: make(chan string, 1)}
	p.jobs <- job
	reply(w, <-job.text, nil)
}

func serveLabels() {
	printer := &labelPrinter{jobs: make(chan *labelJob), database: openDatabase(20)}
	for i := 0; i < 10; i++ {
		go printer.work()
	}
	url := traffic.Serve(http.HandlerFunc(printer.serveLabel))
	traffic.Send(url,
		traffic.Load{Path: "/label", Clients: 8},
		traffic.Load{Path: "/label", PerSecond: 30},
	)
}

func init() { register("workerpool", serveLabels) }
