package main

import (
	"context"
	"database/sql"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"ebpfprof.test/harness/traffic"
)

// A mailer sends messages in batches. When a batch is sent, it wakes only one of the requests that
// wait for it: Signal instead of Broadcast. The others wait for ever.
type mailer struct {
	batches *sql.DB
	mu      sync.Mutex
	current *mailBatch
	sent    atomic.Int64
}

type mailBatch struct {
	isSent *sync.Cond
	sent   bool
}

//go:noinline
func (m *mailer) send() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current == nil {
		m.current = &mailBatch{isSent: sync.NewCond(&m.mu)}
		go m.flush(m.current)
	}
	for batch := m.current; !batch.sent; {
		batch.isSent.Wait()
	}
	m.sent.Add(1)
}

//go:noinline
func (m *mailer) flush(batch *mailBatch) {
	time.Sleep(20 * time.Millisecond) // for others to join
	m.mu.Lock()
	m.current = nil
	m.mu.Unlock()
	query(context.Background(), m.batches, "10ms INSERT INTO messages")
	m.mu.Lock()
	batch.sent = true
	m.mu.Unlock()
	batch.isSent.Signal()
}

//go:noinline
func (m *mailer) serveMessage(w http.ResponseWriter, r *http.Request) {
	m.send()
	reply(w, "sent", nil)
}

//go:noinline
func (m *mailer) serveStatus(w http.ResponseWriter, r *http.Request) {
	row, err := query(r.Context(), m.batches, "5ms SELECT status FROM messages")
	reply(w, row, err)
}

func serveMail() {
	service := &mailer{batches: openDatabase(20)}
	mux := http.NewServeMux()
	mux.HandleFunc("/message/", service.serveMessage)
	mux.HandleFunc("/status/", service.serveStatus)
	traffic.Send(traffic.Serve(mux),
		traffic.Load{Path: "/message", PerSecond: 30, Timeout: 3 * time.Second},
		traffic.Load{Path: "/status", PerSecond: 60},
	)
	awaitCount(&service.sent, 10)
}

func init() { register("lostsignal", serveMail) }
