package main

import (
	"fmt"
	"math/rand"
	"net/http"
	"sync/atomic"
	"time"

	"ebpfprof.test/harness/traffic"
)

// A chatServer has a goroutine for each user who is online. Each makes a timer again and again, to
// see whether its user is still there.
type chatServer struct {
	users []*chatUser
	seen  atomic.Int64
}

type chatUser struct {
	messages chan string
	unread   int
}

const (
	chatUsers    = 100_000
	aliveTimeout = 1500 * time.Millisecond
)

//go:noinline
func (s *chatServer) watch(user *chatUser) {
	time.Sleep(time.Duration(rand.Int63n(int64(aliveTimeout)))) // users come one by one
	for {
		select {
		case <-user.messages:
			user.unread++
		case <-time.After(aliveTimeout):
			s.seen.Add(1)
		}
	}
}

func (s *chatServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.users[keyOf(r)%chatUsers].messages <- "hello"
	fmt.Fprint(w, s.seen.Load())
}

func init() { register("timers", serveChats) }

func serveChats() {
	server := &chatServer{}
	for i := 0; i < chatUsers; i++ {
		user := &chatUser{messages: make(chan string, 1)}
		server.users = append(server.users, user)
		go server.watch(user)
	}
	underLoad(server, traffic.Load{PerSecond: 100})
}
