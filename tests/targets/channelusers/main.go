// Channelusers has goroutines that wait, some of which can use a channel.
//
// One waits to send to it. The others wait for a lock that this one holds: one has the channel, one
// has an object with the channel, one has neither.
package main

import (
	"runtime"
	"sync"

	"ebpfprof.test/harness"
)

type room struct {
	mu      sync.Mutex
	members int
}

type member struct {
	name     string
	messages chan int
}

//go:noinline
func (r *room) send(messages chan int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	messages <- 1
}

//go:noinline
func (r *room) join() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members++
}

//go:noinline
func receive(r *room, messages chan int) {
	r.join()
	<-messages
}

//go:noinline
func follow(r *room, m *member) {
	r.join()
	<-m.messages
	runtime.KeepAlive(m)
}

//go:noinline
func visit(r *room) {
	r.join()
	runtime.KeepAlive(r)
}

//go:noinline
func start() {
	r, messages := new(room), make(chan int)
	go r.send(messages)
	for locked := true; locked; { // until it has the lock
		if locked = r.mu.TryLock(); locked {
			r.mu.Unlock()
			runtime.Gosched()
		}
	}
	go receive(r, messages)
	go follow(r, &member{"a", messages})
	go visit(r)
}

func main() {
	start()
	harness.Ready()
	harness.AwaitEnd()
}
