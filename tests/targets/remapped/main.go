// Remapped replaces its code by an anonymous copy, as tools for huge pages do. Goroutines hold a
// lock for two milliseconds each, one after the other, and one goroutine computes.
//
// Protocol: it prints "ready PID", behind the replacement if its argument is "now". Then it
// replaces its code at a line, and prints "remapped". It ends when its input closes.
package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"ebpfprof.test/harness"
)

var (
	mu   sync.Mutex
	sink uint64
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "now" {
		remap()
	}
	for i := 0; i < 3; i++ {
		go contend()
	}
	go compute()
	harness.Ready()
	if harness.Next() {
		remap()
		fmt.Println("remapped")
		harness.AwaitEnd()
	}
}

func contend() {
	for {
		mu.Lock()
		time.Sleep(2 * time.Millisecond)
		mu.Unlock()
	}
}

//go:noinline
func compute() {
	for {
		sink = sink*31 + 7
	}
}
