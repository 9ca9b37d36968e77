package main

import (
	"database/sql"
	"net/http"

	"ebpfprof.test/harness/traffic"
)

// An orderStore may open two connections to its database only.
type orderStore struct{ database *sql.DB }

//go:noinline
func (s *orderStore) serveOrder(w http.ResponseWriter, r *http.Request) {
	row, err := query(r.Context(), s.database, "10ms SELECT * FROM orders")
	reply(w, row, err)
}

func serveOrders() {
	orders := &orderStore{database: openDatabase(2)}
	url := traffic.Serve(http.HandlerFunc(orders.serveOrder))
	traffic.Send(url, traffic.Load{Path: "/order", Clients: 5})
}

func init() { register("sqlpool", serveOrders) }
