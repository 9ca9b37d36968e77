package main

import (
	"context"
	"runtime"
	"runtime/pprof"
	"sync"
)

// crowd makes four threads send to a channel and receive from it. It has room for all, so they wait
// only for the channel's own lock.
func crowd() {
	const members, sends = 4, 200000
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(members))
	values := make(chan int, members)
	var ended sync.WaitGroup
	pprof.Do(context.Background(), pprof.Labels("in", "crowd"), func(context.Context) {
		for i := 0; i < members; i++ {
			ended.Add(1)
			go func() {
				defer ended.Done()
				sendAndReceive(values, sends)
			}()
		}
	})
	ended.Wait()
}

//go:noinline
func sendAndReceive(values chan int, sends int) {
	for i := 0; i < sends; i++ {
		values <- i
		<-values
	}
}
