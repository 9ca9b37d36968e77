package main

import (
	"database/sql"
	"fmt"
	"net/http"
	"sort"
	"strings"
	"sync/atomic"

	"ebpfprof.test/harness/traffic"
)

// An inventory counts what is in stock. It has no fault of its own: it is run as a race build, and
// with settings for debugging.
type inventory struct {
	stock    map[string]*atomic.Int64
	database *sql.DB
}

//go:noinline
func (i *inventory) take(item string) int64 {
	left := i.stock[item].Add(-1)
	if left == 0 {
		i.stock[item].Add(100)
	}
	return left
}

//go:noinline
func (i *inventory) report() string {
	var lines []string
	for item, number := range i.stock {
		lines = append(lines, fmt.Sprintf("%s: %d", item, number.Load()))
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

func (i *inventory) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	row, err := query(r.Context(), i.database, "2ms SELECT * FROM orders")
	reply(w, fmt.Sprintf("%d %s\n%s", i.take(r.URL.Path), row, i.report()), err)
}

func init() { register("inventory", serveInventory) }

func serveInventory() {
	store := &inventory{stock: map[string]*atomic.Int64{}, database: openDatabase(50)}
	load := traffic.Load{PerSecond: 100, Keys: 200}
	for i := 0; i < load.Keys; i++ {
		item := fmt.Sprint("/", i)
		store.stock[item] = &atomic.Int64{}
		store.stock[item].Add(100)
	}
	underLoad(store, load)
}
