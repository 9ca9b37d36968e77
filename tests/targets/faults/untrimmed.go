package main

import (
	"bytes"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"ebpfprof.test/harness/traffic"
)

// A rateLimiter keeps the last requests of each visitor, and forgets no visitor.
type rateLimiter struct {
	mu       sync.Mutex
	visitors map[string]*visitorWindow
}

type visitorWindow struct {
	times [512]time.Time
	count int
}

//go:noinline
func (l *rateLimiter) allow(visitor string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	window := l.visitors[visitor]
	if window == nil {
		window = &visitorWindow{}
		l.visitors[visitor] = window
	}
	window.times[window.count%len(window.times)] = time.Now()
	window.count++
	return window.count < 1000
}

// A newsPage greets visitors. Each has a new cookie.
type newsPage struct {
	limiter rateLimiter
	cookies atomic.Int64
}

//go:noinline
func (p *newsPage) render(visitor string) []byte {
	var page bytes.Buffer
	for i := 0; i < 500; i++ {
		fmt.Fprintf(&page, "<p>News %d for %s</p>\n", i, visitor)
	}
	return page.Bytes()
}

func (p *newsPage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	visitor := fmt.Sprint("visitor", p.cookies.Add(1))
	if p.limiter.allow(visitor) {
		w.Write(p.render(visitor))
	}
}

func init() { register("untrimmed", serveNews) }

func serveNews() {
	page := &newsPage{limiter: rateLimiter{visitors: map[string]*visitorWindow{}}}
	underLoad(page, traffic.Load{PerSecond: 300})
}
