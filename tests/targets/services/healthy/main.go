// Healthy serves reports without a fault: a cache whose lock is held for microseconds, workers
// that mostly wait for jobs, idle connections, a ticker.
package main

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
)

type job struct {
	name   string
	answer chan string
}

type reports struct {
	mu    sync.RWMutex
	texts map[string]string
	jobs  chan job
}

//go:noinline
func (r *reports) get(name string) string {
	r.mu.RLock()
	text, ok := r.texts[name]
	r.mu.RUnlock()
	if ok {
		return text
	}
	wanted := job{name: name, answer: make(chan string, 1)}
	r.jobs <- wanted
	return <-wanted.answer
}

//go:noinline
func (r *reports) work() {
	for wanted := range r.jobs {
		text := "report of " + wanted.name
		r.mu.Lock()
		r.texts[wanted.name] = text
		r.mu.Unlock()
		wanted.answer <- text
	}
}

//go:noinline
func (r *reports) clean() {
	for range time.Tick(100 * time.Millisecond) {
		r.mu.Lock()
		r.texts = map[string]string{}
		r.mu.Unlock()
	}
}

func main() {
	store := &reports{texts: map[string]string{}, jobs: make(chan job, 100)}
	for i := 0; i < 8; i++ {
		go store.work()
	}
	go store.clean()
	var served atomic.Int64
	service := traffic.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(5 * time.Millisecond)
		fmt.Fprint(w, store.get(r.URL.Path))
		served.Add(1)
	}))
	traffic.Start(service, 10, 50)
	harness.Poll(func() bool { return served.Load() > 50 })
	harness.Ready()
	harness.AwaitEnd()
}
