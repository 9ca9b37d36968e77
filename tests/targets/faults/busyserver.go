package main

import (
	"database/sql"
	"encoding/json"
	"net/http"
	"sync"

	"ebpfprof.test/harness/traffic"
)

// A profileStore takes about a third of a processor. Its lock is held for less than a microsecond.
type profileStore struct {
	mu       sync.Mutex
	visits   map[int]int
	database *sql.DB
}

type userProfile struct {
	ID      int
	Row     string
	Visits  int
	Friends []int
}

//go:noinline
func (s *profileStore) visit(id int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.visits[id]++
	return s.visits[id]
}

//go:noinline
func (s *profileStore) render(id int, row string) ([]byte, error) {
	user := userProfile{ID: id, Row: row, Visits: s.visit(id)}
	for i := 0; i < 1000; i++ {
		user.Friends = append(user.Friends, id*i)
	}
	return json.Marshal(user)
}

//go:noinline
func (s *profileStore) serveProfile(w http.ResponseWriter, r *http.Request) {
	id := keyOf(r)
	row, err := query(r.Context(), s.database, "4ms SELECT * FROM users")
	if err != nil {
		reply(w, "", err)
		return
	}
	text, err := s.render(id, row)
	reply(w, string(text), err)
}

func serveProfiles() {
	users := &profileStore{visits: map[int]int{}, database: openDatabase(100)}
	url := traffic.Serve(http.HandlerFunc(users.serveProfile))
	traffic.Send(url, traffic.Load{Path: "/profile", PerSecond: 1200})
}

func init() { register("busyserver", serveProfiles) }
