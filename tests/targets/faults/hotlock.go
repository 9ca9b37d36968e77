package main

import (
	"crypto/sha256"
	"database/sql"
	"fmt"
	"net/http"
	"sync"
	"time"

	"ebpfprof.test/harness/traffic"
)

// A quoteTable computes a quote while it holds its only lock: a quarter of the requests do.
type quoteTable struct {
	mu     sync.Mutex
	quotes map[int][sha256.Size]byte
	orders *sql.DB
}

//go:noinline
func (t *quoteTable) quote(symbol int) [sha256.Size]byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	if symbol%4 == 0 {
		t.quotes[symbol] = t.compute(symbol)
	}
	return t.quotes[symbol]
}

//go:noinline
func (t *quoteTable) compute(symbol int) [sha256.Size]byte {
	sum := sha256.Sum256([]byte{byte(symbol)})
	for i := 0; i < 60_000; i++ { // about 6 ms
		sum = sha256.Sum256(sum[:])
	}
	return sum
}

//go:noinline
func (t *quoteTable) serveQuote(w http.ResponseWriter, r *http.Request) {
	row, err := query(r.Context(), t.orders, "8ms SELECT price FROM trades")
	reply(w, fmt.Sprintf("%s: %x", row, t.quote(keyOf(r))), err)
}

func serveQuotes() {
	table := &quoteTable{quotes: map[int][sha256.Size]byte{}, orders: openDatabase(50)}
	service := traffic.Serve(http.HandlerFunc(table.serveQuote))
	burst, every := 5*time.Millisecond, 100*time.Millisecond
	traffic.Send(service, traffic.Load{PerSecond: 200, Burst: burst, Every: every})
}

func init() { register("hotlock", serveQuotes) }
