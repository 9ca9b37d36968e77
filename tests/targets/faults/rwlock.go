package main

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"sync"
	"time"

	"ebpfprof.test/harness/traffic"
)

// A catalog blocks its readers while it reads all products again, many times a minute.
type catalog struct {
	mu       sync.RWMutex
	products string
	database *sql.DB
}

//go:noinline
func (c *catalog) reload() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.products, _ = query(context.Background(), c.database, "45ms SELECT * FROM products")
}

//go:noinline
func (c *catalog) reloadOften() {
	for range time.Tick(125 * time.Millisecond) {
		c.reload()
	}
}

//go:noinline
func (c *catalog) product(id int) string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return fmt.Sprint(c.products, id)
}

//go:noinline
func (c *catalog) serveProduct(w http.ResponseWriter, r *http.Request) {
	stock, err := query(r.Context(), c.database, "8ms SELECT stock FROM warehouses")
	reply(w, stock+c.product(keyOf(r)), err)
}

func serveCatalog() {
	products := &catalog{database: openDatabase(50)}
	go products.reloadOften()
	url := traffic.Serve(http.HandlerFunc(products.serveProduct))
	traffic.Send(url, traffic.Load{Path: "/product", PerSecond: 150})
}

func init() { register("rwlock", serveCatalog) }
