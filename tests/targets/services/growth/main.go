// Growth keeps each session that a request opens in a map, and never removes one.
package main

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
)

type session struct {
	user    string
	history []byte
}

type sessionStore struct {
	mu       sync.Mutex
	sessions map[int]*session
}

//go:noinline
func (s *sessionStore) open(user string) int {
	opened := newSession(user)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[len(s.sessions)] = opened
	return len(s.sessions)
}

//go:noinline
func newSession(user string) *session {
	return &session{user: user, history: make([]byte, 64<<10)}
}

func main() {
	store := &sessionStore{sessions: map[int]*session{}}
	service := traffic.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(10 * time.Millisecond)
		fmt.Fprint(w, store.open(r.URL.Path))
	}))
	traffic.Start(service, 2, 1000)
	harness.Poll(func() bool {
		store.mu.Lock()
		defer store.mu.Unlock()
		return len(store.sessions) > 100
	})
	harness.Ready()
	harness.AwaitEnd()
}
