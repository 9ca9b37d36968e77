package main

import (
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"time"

	"ebpfprof.test/harness/traffic"
)

// A mailQueue has a sender that yields when there is no mail, instead of waiting for one.
type mailQueue struct {
	mu    sync.Mutex
	mails []string
	sent  int
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
	q.sent++
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

func (q *mailQueue) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	time.Sleep(2 * time.Millisecond) // what the service asks others
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mails = append(q.mails, r.URL.Path)
	fmt.Fprint(w, q.sent)
}

func init() { register("yielding", yielding) }

func yielding() {
	queue := &mailQueue{}
	go queue.send()
	underLoad(queue, traffic.Load{PerSecond: 200})
}
