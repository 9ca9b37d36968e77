// Httppprof serves net/http/pprof with the block and mutex profiles on, as the reference for our
// server. One goroutine makes others wait for a lock and for a channel.
//
// Protocol: it prints "ready PID", then "address HOST:PORT", works without end, answers "exec" by
// replacing itself with `sleep`, and ends at the end of its input.
package main

import (
	"fmt"
	"net"
	"net/http"
	_ "net/http/pprof"
	"runtime"
	"sync"
	"syscall"
	"time"

	"ebpfprof.test/harness"
)

func main() {
	runtime.SetBlockProfileRate(1)
	runtime.SetMutexProfileFraction(1)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Check(err)
	go func() { harness.Check(http.Serve(listener, nil)) }()
	go contend()
	go handOver()
	harness.Ready()
	fmt.Println("address", listener.Addr())
	for harness.Next() {
		if harness.Command() == "exec" {
			harness.Check(syscall.Exec("/bin/sleep", []string{"sleep", "600"}, nil))
		}
	}
}

// contend: two goroutines want a lock, and its holder keeps it for a while.
func contend() {
	var mu sync.Mutex
	for g := 0; g < 2; g++ {
		go func() {
			for {
				holdLock(&mu)
			}
		}()
	}
}

func holdLock(mu *sync.Mutex) {
	mu.Lock()
	time.Sleep(time.Millisecond)
	mu.Unlock()
}

// handOver: the sender is slow, every receive waits.
func handOver() {
	c := make(chan int)
	go func() {
		for {
			time.Sleep(time.Millisecond)
			c <- 1
		}
	}()
	for range c {
	}
}
