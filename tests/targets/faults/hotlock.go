package main

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"sync"
	"time"

	"ebpfprof.test/harness/traffic"
)

// A quoteTable computes a quote while it holds its only lock.
type quoteTable struct {
	mu     sync.Mutex
	quotes map[string][sha256.Size]byte
}

//go:noinline
func (t *quoteTable) refresh(symbol string) [sha256.Size]byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	quote := t.compute(symbol)
	t.quotes[symbol] = quote
	return quote
}

//go:noinline
func (t *quoteTable) compute(symbol string) [sha256.Size]byte {
	quote := sha256.Sum256([]byte(symbol))
	for i := 0; i < 2000; i++ {
		quote = sha256.Sum256(quote[:])
	}
	return quote
}

func init() { register("hotlock", hotlock) }

func hotlock() {
	table := &quoteTable{quotes: map[string][sha256.Size]byte{}}
	service := traffic.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(2 * time.Millisecond) // what the service asks others
		fmt.Fprintf(w, "%x", table.refresh(r.URL.Path))
	}))
	traffic.Start(service, 6, 100)
}
