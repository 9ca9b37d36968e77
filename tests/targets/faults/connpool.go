package main

import (
	"net/http"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
)

// A cartStore has too few connections: they wait in a channel while they are free.
type cartStore struct{ free chan *rowsConn }

//go:noinline
func (s *cartStore) acquire() *rowsConn { return <-s.free }

//go:noinline
func (s *cartStore) release(c *rowsConn) { s.free <- c }

//go:noinline
func (s *cartStore) load() (string, error) {
	connection := s.acquire()
	defer s.release(connection)
	return connection.exchange("10ms SELECT * FROM carts")
}

//go:noinline
func (s *cartStore) serveCart(w http.ResponseWriter, r *http.Request) {
	row, err := s.load()
	reply(w, row, err)
}

func serveCarts() {
	carts := &cartStore{free: make(chan *rowsConn, 3)}
	address := startPeer("database")
	for i := 0; i < cap(carts.free); i++ {
		connection, err := dialRows(address)
		harness.Check(err)
		carts.release(connection)
	}
	url := traffic.Serve(http.HandlerFunc(carts.serveCart))
	traffic.Send(url, traffic.Load{Path: "/cart", Clients: 8})
}

func init() { register("connpool", serveCarts) }
