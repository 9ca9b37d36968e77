package main

import (
	"database/sql"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"ebpfprof.test/harness/traffic"
)

// A chatRoom sends each message to its members while it holds its lock. Its members want that lock
// after each fifth message. Then the room waits for a member, and the member for the room.
type chatRoom struct {
	mu       sync.Mutex
	members  []chan string
	unread   map[int]int
	messages *sql.DB
	sent     atomic.Int64
}

//go:noinline
func (c *chatRoom) say(message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, member := range c.members {
		member <- message
	}
	c.sent.Add(1)
}

//go:noinline
func (c *chatRoom) follow(member int, messages <-chan string) {
	seen := 0
	for range messages {
		if seen++; seen%5 == 0 {
			c.markRead(member, seen)
		}
	}
}

//go:noinline
func (c *chatRoom) markRead(member, seen int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unread[member] -= seen
}

//go:noinline
func (c *chatRoom) serveSay(w http.ResponseWriter, r *http.Request) {
	row, err := query(r.Context(), c.messages, "4ms INSERT INTO messages")
	if err == nil {
		c.say(row)
	}
	reply(w, row, err)
}

//go:noinline
func (c *chatRoom) serveHistory(w http.ResponseWriter, r *http.Request) {
	row, err := query(r.Context(), c.messages, "8ms SELECT * FROM messages")
	reply(w, fmt.Sprint(row, keyOf(r)), err)
}

func serveChat() {
	room := &chatRoom{unread: map[int]int{}, messages: openDatabase(30)}
	for i := 0; i < 20; i++ {
		messages := make(chan string)
		room.members = append(room.members, messages)
		go room.follow(i, messages)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/say/", room.serveSay)
	mux.HandleFunc("/history/", room.serveHistory)
	burst, every := 5*time.Millisecond, 250*time.Millisecond
	traffic.Send(traffic.Serve(mux),
		traffic.Load{Path: "/say", PerSecond: 40, Burst: burst, Every: every, Timeout: 3 * time.Second},
		traffic.Load{Path: "/history", PerSecond: 60},
	)
	awaitStop(&room.sent)
}

func init() { register("channeldeadlock", serveChat) }
