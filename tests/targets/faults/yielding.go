package main

import (
	"database/sql"
	"fmt"
	"net/http"
	"runtime"
	"sync"

	"ebpfprof.test/harness/traffic"
)

// A mailQueue has a sender that yields when there is no mail, instead of waiting for one.
type mailQueue struct {
	mu        sync.Mutex
	mails     []string
	addresses *sql.DB
}

//go:noinline
func (q *mailQueue) take() (string, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.mails) == 0 {
		return "", false
	}
	mail := q.mails[0]
	q.mails = q.mails[1:]
	return mail, true
}

//go:noinline
func (q *mailQueue) send() {
	for {
		if _, ok := q.take(); !ok {
			runtime.Gosched()
		}
	}
}

//go:noinline
func (q *mailQueue) add(mail string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mails = append(q.mails, mail)
	return len(q.mails)
}

func (q *mailQueue) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	address, err := query(r.Context(), q.addresses, "2ms SELECT address FROM users")
	reply(w, fmt.Sprint(q.add(address), " waiting"), err)
}

func init() { register("yielding", serveMailQueue) }

func serveMailQueue() {
	queue := &mailQueue{addresses: openDatabase(50)}
	go queue.send()
	underLoad(queue, traffic.Load{PerSecond: 200})
}
