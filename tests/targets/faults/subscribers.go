package main

import (
	"context"
	"database/sql"
	"net/http"
	"sync"
	"time"

	"ebpfprof.test/harness/traffic"
)

// A topicHub has five hundred subscribers, most of which rarely get a message.
type topicHub struct {
	mu       sync.RWMutex
	topics   [100][]chan string
	database *sql.DB
}

//go:noinline
func (h *topicHub) subscribe(topic int) <-chan string {
	messages := make(chan string, 4)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.topics[topic] = append(h.topics[topic], messages)
	return messages
}

//go:noinline
func (h *topicHub) publish(topic int, message string) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, messages := range h.topics[topic] {
		select {
		case messages <- message:
		default: // it is slow: it misses a message
		}
	}
}

//go:noinline
func (h *topicHub) deliver(ctx context.Context, messages <-chan string) {
	for {
		select {
		case message := <-messages:
			query(ctx, h.database, "1ms NOTIFY "+message)
		case <-ctx.Done():
			return
		}
	}
}

//go:noinline
func (h *topicHub) deliverAll(messages <-chan string) {
	for message := range messages {
		query(context.Background(), h.database, "1ms NOTIFY "+message)
	}
}

//go:noinline
func (h *topicHub) servePublish(w http.ResponseWriter, r *http.Request) {
	row, err := query(r.Context(), h.database, "3ms INSERT INTO messages")
	h.publish(keyOf(r)%3, row[:3]) // three topics are popular
	reply(w, row, err)
}

func servePublications() {
	hub := &topicHub{database: openDatabase(50)}
	ctx, cancel := context.WithCancel(context.Background())
	for i := 0; i < 500; i++ {
		if i%2 == 0 {
			go hub.deliver(ctx, hub.subscribe(i%100))
		} else {
			go hub.deliverAll(hub.subscribe(i % 100))
		}
	}
	time.AfterFunc(24*time.Hour, cancel)
	url := traffic.Serve(http.HandlerFunc(hub.servePublish))
	traffic.Send(url, traffic.Load{Path: "/publish", PerSecond: 30})
}

func init() { register("subscribers", servePublications) }
