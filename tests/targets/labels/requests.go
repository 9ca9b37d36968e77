package main

import (
	"context"
	"runtime/pprof"
	"strconv"
	"sync/atomic"

	"ebpfprof.test/harness"
)

// serve makes a goroutine wait in receive once for each request, under a label of this request
// only, and one that every second request has.
func serve(requests int) {
	var id int64
	values, ended := make(chan int), make(chan bool)
	go func() {
		atomic.StoreInt64(&id, harness.GoroutineID())
		for i := 0; i < requests; i++ {
			tier := []string{"gold", "free"}[i%2]
			of := pprof.Labels("request", strconv.Itoa(i), "tier", tier)
			pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), of))
			receive(values)
		}
		close(ended)
	}()
	poll(&id, 1)
	for i := 0; i < requests; i++ {
		harness.AwaitBlocked(id)
		values <- i
	}
	<-ended
}
