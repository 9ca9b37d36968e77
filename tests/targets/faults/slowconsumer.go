package main

import (
	"context"
	"database/sql"
	"net/http"

	"ebpfprof.test/harness/traffic"
)

// An auditLog is written by one goroutine, which is slower than the requests that send to it.
type auditLog struct {
	events   chan string
	database *sql.DB
}

//go:noinline
func (l *auditLog) record(event string) { l.events <- event }

//go:noinline
func (l *auditLog) write() {
	for event := range l.events {
		query(context.Background(), l.database, "5ms INSERT INTO audits "+event)
	}
}

//go:noinline
func (l *auditLog) serveChange(w http.ResponseWriter, r *http.Request) {
	row, err := query(r.Context(), l.database, "20ms UPDATE customers")
	l.record(r.URL.Path)
	reply(w, row, err)
}

func serveChanges() {
	log := &auditLog{events: make(chan string, 20), database: openDatabase(50)}
	go log.write()
	url := traffic.Serve(http.HandlerFunc(log.serveChange))
	traffic.Send(url, traffic.Load{Path: "/change", Clients: 8})
}

func init() { register("slowconsumer", serveChanges) }
