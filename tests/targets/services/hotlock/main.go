// Hotlock serves prices from a cache with one lock, which it holds while it fetches a price that
// is too old. Answers that find a price hold it for microseconds.
package main

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
)

const (
	fetchTime = 20 * time.Millisecond
	maxAge    = 3 * time.Second
	prices    = 100
)

type price struct {
	cents   int
	fetched time.Time
}

type priceCache struct {
	mu     sync.Mutex
	prices map[string]price
	source string
}

//go:noinline
func (c *priceCache) get(name string) price {
	c.mu.Lock()
	found, ok := c.prices[name]
	if ok && time.Since(found.fetched) < maxAge {
		c.mu.Unlock() // released: hit
		return found
	}
	found = price{cents: c.fetch(name), fetched: time.Now()}
	c.prices[name] = found
	c.mu.Unlock() // released: fetched
	return found
}

//go:noinline
func (c *priceCache) fetch(name string) int {
	answer, err := http.Get(c.source + name)
	harness.Check(err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	harness.Check(err)
	return len(text)
}

func main() {
	source := traffic.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(fetchTime)
		fmt.Fprint(w, "price")
	}))
	cache := &priceCache{prices: map[string]price{}, source: source}
	service := traffic.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, cache.get(r.URL.Path).cents)
	}))
	traffic.Start(service, 40, prices)
	harness.Poll(func() bool {
		cache.mu.Lock()
		defer cache.mu.Unlock()
		return len(cache.prices) == prices
	})
	harness.Ready()
	harness.AwaitEnd()
}
