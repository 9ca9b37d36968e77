// Deadlock serves transfers between two accounts, which lock both accounts in the order of their
// arguments. Two opposite ones have met before it is ready; later ones queue behind them.
package main

import (
	"fmt"
	"net/http"
	"sync"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
)

type account struct {
	mu    sync.Mutex
	cents int
}

//go:noinline
func transfer(from, to *account, cents int, between func()) {
	from.mu.Lock()
	defer from.mu.Unlock()
	between()
	to.mu.Lock()
	defer to.mu.Unlock()
	from.cents -= cents
	to.cents += cents
}

func main() {
	accounts := [2]account{{cents: 1000}, {cents: 1000}}
	var met sync.WaitGroup
	met.Add(2)
	meet := func() {
		met.Done()
		met.Wait()
	}
	ids := make(chan int64)
	for i := 0; i < 2; i++ {
		go func(from, to *account) {
			ids <- harness.GoroutineID()
			transfer(from, to, 1, meet)
		}(&accounts[i], &accounts[1-i])
	}
	first, second := <-ids, <-ids
	harness.AwaitState(first, "sync.Mutex.Lock", "semacquire")
	harness.AwaitState(second, "sync.Mutex.Lock", "semacquire")
	service := traffic.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		transfer(&accounts[0], &accounts[1], 1, func() {})
		fmt.Fprint(w, "done")
	}))
	traffic.Start(service, 10, 10)
	harness.Ready()
	harness.AwaitEnd()
}
