package main

import (
	"database/sql"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
)

// An invoicer holds a lock while it asks a printer, which stops to answer after some time.
type invoicer struct {
	database *sql.DB
	mu       sync.Mutex
	printer  *rowsConn
	pages    int
	printed  atomic.Int64
}

//go:noinline
func (i *invoicer) print() (string, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.pages++
	job := "2ms PRINT"
	if i.pages == 50 {
		job = "24h PRINT"
	}
	return i.printer.exchange(job)
}

//go:noinline
func (i *invoicer) serveInvoice(w http.ResponseWriter, r *http.Request) {
	text, err := i.print()
	i.printed.Add(1)
	reply(w, text, err)
}

//go:noinline
func (i *invoicer) serveCustomer(w http.ResponseWriter, r *http.Request) {
	row, err := query(r.Context(), i.database, "5ms SELECT name FROM customers")
	reply(w, row, err)
}

func serveInvoices() {
	printer, err := dialRows(startPeer("database"))
	harness.Check(err)
	service := &invoicer{database: openDatabase(20), printer: printer}
	mux := http.NewServeMux()
	mux.HandleFunc("/invoice/", service.serveInvoice)
	mux.HandleFunc("/customer/", service.serveCustomer)
	traffic.Send(traffic.Serve(mux),
		traffic.Load{Path: "/invoice", PerSecond: 40, Timeout: 3 * time.Second},
		traffic.Load{Path: "/customer", PerSecond: 60},
	)
	awaitStop(&service.printed)
}

func init() { register("hang", serveInvoices) }
