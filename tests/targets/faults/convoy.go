package main

import (
	"database/sql"
	"fmt"
	"net/http"
	"sync"
	"time"

	"ebpfprof.test/harness/traffic"
)

// A numberRange gives each line of an order a number, under a lock that is held for nanoseconds. At
// peak a hundred requests want it: it is handed from one to the next, which takes longer.
type numberRange struct {
	mu   sync.Mutex
	last int
}

//go:noinline
func (n *numberRange) next() int {
	n.mu.Lock()
	n.last++
	number := n.last
	n.mu.Unlock()
	return number
}

type orderImport struct {
	numbers  numberRange
	database *sql.DB
}

//go:noinline
func (o *orderImport) serveImport(w http.ResponseWriter, r *http.Request) {
	row, err := query(r.Context(), o.database, "8ms SELECT lines FROM imports")
	sum := 0
	for i := 0; i < 300; i++ {
		sum += checksum(o.numbers.next())
	}
	reply(w, fmt.Sprint(row, sum), err)
}

//go:noinline
func checksum(number int) int {
	sum := number
	for i := 0; i < 100; i++ {
		sum = sum*31 + i
	}
	return sum
}

func serveImports() {
	service := &orderImport{database: openDatabase(100)}
	url := traffic.Serve(http.HandlerFunc(service.serveImport))
	burst, every := 2*time.Millisecond, 200*time.Millisecond
	traffic.Send(url, traffic.Load{Path: "/import", PerSecond: 500, Burst: burst, Every: every})
}

func init() { register("convoy", serveImports) }
