// Manylocks makes a lock for each request, for which another goroutine waits once.
//
// Protocol: it prints "ready PID". At the line "lock N" it uses N locks, one after the other, and
// then answers "done"; "loop N" is like that, again and again, and is answered at once. It ends
// when its input closes.
package main

import (
	"fmt"
	"sync"

	"ebpfprof.test/harness"
)

type request struct {
	mu    sync.Mutex
	count int
}

// All of them, so that no two have the same address.
var requests []*request

func main() {
	harness.Ready()
	for harness.Next() {
		var what string
		var count int
		if _, err := fmt.Sscan(harness.Command(), &what, &count); err != nil {
			fmt.Println("error", err)
			continue
		}
		if what == "loop" {
			go func() {
				for {
					use(count)
				}
			}()
		} else {
			use(count)
		}
		fmt.Println("done")
	}
}

func use(count int) {
	ids := make(chan int64)
	done := make(chan bool)
	for i := 0; i < count; i++ {
		r := &request{}
		requests = append(requests, r)
		r.mu.Lock()
		go func() {
			ids <- harness.GoroutineID()
			r.await()
			done <- true
		}()
		harness.AwaitBlocked(<-ids)
		r.mu.Unlock()
		<-done
	}
}

//go:noinline
func (r *request) await() {
	r.mu.Lock()
	r.count++
	r.mu.Unlock()
}
