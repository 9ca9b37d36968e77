package main

import (
	"database/sql"
	"fmt"
	"net/http"
	"sort"
	"strings"
	"sync"

	"ebpfprof.test/harness/traffic"
)

// An inventory counts what is in stock. It has no fault of its own: it is run as a race build, and
// with settings for debugging.
type inventory struct {
	mu       sync.RWMutex
	stock    map[string]int
	database *sql.DB
}

//go:noinline
func (i *inventory) take(item string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.stock[item]--
	if i.stock[item] <= 0 {
		i.stock[item] = 100
	}
	return i.stock[item]
}

//go:noinline
func (i *inventory) report() string {
	var items []string
	var numbers []int
	i.mu.RLock()
	for item, number := range i.stock {
		items, numbers = append(items, item), append(numbers, number)
	}
	i.mu.RUnlock()
	var lines []string
	for place, item := range items {
		lines = append(lines, fmt.Sprintf("%s: %d", item, numbers[place]))
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
	store := &inventory{stock: map[string]int{}, database: openDatabase(50)}
	underLoad(store, traffic.Load{PerSecond: 200, Keys: 200})
}
