package main

import (
	"database/sql"
	"net/http"
	"time"

	"ebpfprof.test/harness/traffic"
)

// A feed gets all requests of a second within 200 ms.
type feed struct{ database *sql.DB }

//go:noinline
func (f *feed) serveFeed(w http.ResponseWriter, r *http.Request) {
	row, err := query(r.Context(), f.database, "5ms SELECT * FROM posts")
	reply(w, row, err)
}

func serveFeed() {
	posts := &feed{database: openDatabase(100)}
	url := traffic.Serve(http.HandlerFunc(posts.serveFeed))
	burst := 200 * time.Millisecond
	traffic.Send(url, traffic.Load{Path: "/feed", PerSecond: 300, Burst: burst})
}

func init() { register("burstyserver", serveFeed) }
