package main

import (
	"fmt"
	"net/http"
	"sort"
	"strings"
	"sync"
	"time"

	"ebpfprof.test/harness/traffic"
)

// An inventory counts what is in stock. It has no fault of its own: it is run as a race build, and
// with settings for debugging.
type inventory struct {
	mu    sync.RWMutex
	stock map[string]int
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
	i.mu.RLock()
	lines := make([]string, 0, len(i.stock))
	for item, number := range i.stock {
		lines = append(lines, fmt.Sprintf("%s: %d", item, number))
	}
	i.mu.RUnlock()
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

func (i *inventory) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	time.Sleep(2 * time.Millisecond) // what the service asks others
	fmt.Fprintf(w, "%d\n%s", i.take(r.URL.Path), i.report())
}

func init() { register("inventory", inventoryService) }

func inventoryService() {
	underLoad(&inventory{stock: map[string]int{}}, traffic.Load{PerSecond: 200, Keys: 200})
}
