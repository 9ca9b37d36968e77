// Hostile has names that a test overwrites in the binary: a function, a file and a package variable
// with the name Room_xxx..., of 120 bytes. Its goroutines wait for a channel and a lock, use the
// processor, and have the labels of its arguments: key value ...
//
// Protocol: it prints "ready PID" and then works until its input closes.
package main

import (
	"context"
	"os"
	"runtime/pprof"
	"sync"
	"time"

	"ebpfprof.test/harness"
)

var Room_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx sync.Mutex

func main() {
	go pprof.Do(context.Background(), pprof.Labels(os.Args[1:]...), func(context.Context) {
		c := make(chan int)
		go send(c)
		for value := range c {
			Room_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx_f(value)
		}
	})
	for i := 0; i < 2; i++ {
		go pprof.Do(context.Background(), pprof.Labels(os.Args[1:]...), func(context.Context) {
			for {
				hold()
			}
		})
	}
	harness.Ready()
	harness.AwaitEnd()
}

func send(c chan<- int) {
	for i := 0; ; i++ {
		time.Sleep(time.Millisecond)
		c <- i
	}
}

func hold() {
	Room_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx.Lock()
	defer Room_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx.Unlock()
	time.Sleep(500 * time.Microsecond)
}

var sum int

// It waits, and uses the processor: its name and that of its file are in all profiles.
//
//go:noinline
func Room_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx_f(value int) {
	c := make(chan int)
	go func() {
//line /Room_/Room_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx.go:7
		time.Sleep(2 * time.Millisecond)
		c <- value
	}()
	sum += <-c
	for i := 0; i < 1_000_000; i++ {
		sum += i * value
	}
}
