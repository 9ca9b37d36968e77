package main

import (
	"database/sql"
	"net/http"

	"ebpfprof.test/harness/traffic"
)

// A storefront is fast, but for what it asks a recommender, which takes 200 ms.
type storefront struct {
	database       *sql.DB
	recommender    *http.Client
	recommenderURL string
}

//go:noinline
func (s *storefront) serveItem(w http.ResponseWriter, r *http.Request) {
	row, err := query(r.Context(), s.database, "14ms SELECT * FROM items")
	reply(w, row, err)
}

//go:noinline
func (s *storefront) serveRecommendations(w http.ResponseWriter, r *http.Request) {
	text, err := get(s.recommender, s.recommenderURL+"/200ms/similar")
	reply(w, text, err)
}

func serveStorefront() {
	shop := &storefront{
		database:       openDatabase(50),
		recommender:    &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 50}},
		recommenderURL: startPeer("backend"),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/item/", shop.serveItem)
	mux.HandleFunc("/recommendations/", shop.serveRecommendations)
	traffic.Send(traffic.Serve(mux),
		traffic.Load{Path: "/item", PerSecond: 200},
		traffic.Load{Path: "/recommendations", PerSecond: 15},
	)
}

func init() { register("slowpeer", serveStorefront) }
