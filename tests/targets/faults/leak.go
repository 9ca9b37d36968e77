package main

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"runtime"
	"time"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
)

// A searcher stops to wait for a search after 50 ms. The search sends its result to a channel
// without a buffer that nobody receives from any more.
type searcher struct{ index *sql.DB }

//go:noinline
func (s *searcher) search(statement string, results chan<- string) {
	row, _ := query(context.Background(), s.index, statement)
	results <- row
}

//go:noinline
func (s *searcher) find(key int) (string, error) {
	results := make(chan string)
	statement := "8ms SELECT * FROM pages"
	if key%4 == 0 {
		statement = "90ms SELECT * FROM pages, links"
	}
	go s.search(statement, results)
	select {
	case result := <-results:
		return result, nil
	case <-time.After(50 * time.Millisecond):
		return "", fmt.Errorf("search took too long")
	}
}

//go:noinline
func (s *searcher) serveSearch(w http.ResponseWriter, r *http.Request) {
	result, err := s.find(keyOf(r))
	reply(w, result, err)
}

func serveSearches() {
	service := &searcher{index: openDatabase(40)}
	url := traffic.Serve(http.HandlerFunc(service.serveSearch))
	traffic.Send(url, traffic.Load{Path: "/search", PerSecond: 60})
	harness.Poll(func() bool { return runtime.NumGoroutine() > 60 })
}

func init() { register("leak", serveSearches) }
