package main

import (
	"database/sql"
	"net/http"

	"ebpfprof.test/harness/traffic"
)

// A healthPage is asked once a second, as if by a load balancer. Nothing else happens.
type healthPage struct{ database *sql.DB }

//go:noinline
func (p *healthPage) serveHealth(w http.ResponseWriter, r *http.Request) {
	row, err := query(r.Context(), p.database, "2ms SELECT 1")
	reply(w, row, err)
}

func serveHealth() {
	page := &healthPage{database: openDatabase(5)}
	url := traffic.Serve(http.HandlerFunc(page.serveHealth))
	traffic.Send(url, traffic.Load{Path: "/health", PerSecond: 1})
}

func init() { register("idleserver", serveHealth) }
