// Leak answers each request with the first of two searches. The other one sends its result to a
// channel without a buffer that nobody receives from any more, and stays.
package main

import (
	"fmt"
	"net/http"
	"runtime"
	"time"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
)

//go:noinline
func search(results chan<- int, takes time.Duration) {
	time.Sleep(takes)
	results <- int(takes)
}

//go:noinline
func firstResult() int {
	results := make(chan int)
	go search(results, time.Millisecond)
	go search(results, 2*time.Millisecond)
	return <-results
}

func main() {
	service := traffic.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(20 * time.Millisecond)
		fmt.Fprint(w, firstResult())
	}))
	traffic.Start(service, 4, 1000)
	harness.Poll(func() bool { return runtime.NumGoroutine() > 500 })
	harness.Ready()
	harness.AwaitEnd()
}
