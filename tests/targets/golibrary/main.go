// Golibrary is a library for C: Work starts goroutines that hold a lock for two milliseconds each,
// one after the other, and one that computes. The tests build it with -buildmode=c-shared.
package main

import "C"

import (
	"sync"
	"time"
)

var (
	mu   sync.Mutex
	sink uint64
)

// Work starts the goroutines and returns.
//
//export Work
func Work() {
	for i := 0; i < 3; i++ {
		go contend()
	}
	go compute()
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

func main() {}
