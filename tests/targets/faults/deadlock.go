package main

import (
	"database/sql"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"ebpfprof.test/harness/traffic"
)

// A ledger locks the two accounts of a transfer in the order of the request. Two opposite transfers
// soon wait for each other, and later ones for them.
type ledger struct {
	accounts [2]account
	audits   *sql.DB
	done     atomic.Int64
}

type account struct {
	mu    sync.Mutex
	cents int
}

//go:noinline
func (l *ledger) transfer(r *http.Request, from, to *account) error {
	from.mu.Lock()
	defer from.mu.Unlock()
	if _, err := query(r.Context(), l.audits, "3ms INSERT INTO audits"); err != nil {
		return err
	}
	to.mu.Lock()
	defer to.mu.Unlock()
	from.cents--
	to.cents++
	return nil
}

//go:noinline
func (l *ledger) serveTransfer(w http.ResponseWriter, r *http.Request) {
	from := keyOf(r) % 2
	err := l.transfer(r, &l.accounts[from], &l.accounts[1-from])
	reply(w, fmt.Sprint(l.done.Add(1)), err)
}

//go:noinline
func (l *ledger) serveStatement(w http.ResponseWriter, r *http.Request) {
	row, err := query(r.Context(), l.audits, "5ms SELECT * FROM audits")
	reply(w, row, err)
}

func serveLedger() {
	books := &ledger{audits: openDatabase(20)}
	mux := http.NewServeMux()
	mux.HandleFunc("/transfer/", books.serveTransfer)
	mux.HandleFunc("/statement/", books.serveStatement)
	traffic.Send(traffic.Serve(mux),
		traffic.Load{Path: "/transfer", PerSecond: 20, Timeout: 3 * time.Second},
		traffic.Load{Path: "/statement", PerSecond: 60},
	)
	awaitStop(&books.done)
}

func init() { register("deadlock", serveLedger) }
