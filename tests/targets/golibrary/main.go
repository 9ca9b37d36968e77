// Golibrary is a library for C. Work starts goroutines that hold a lock for two milliseconds each,
// one after the other, and one that computes. Rounds makes goroutines wait a known number of times.
// The tests build it with -buildmode=c-shared.
package main

import "C"

import (
	"runtime"
	"sync"
	"time"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/ownprofile"
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

// Profile switches Go's own block profiler on.
//
//export Profile
func Profile() { runtime.SetBlockProfileRate(1) }

// Rounds makes goroutines wait n times for a channel, n times for a lock, and n times for a channel
// in a goroutine that C called.
//
//export Rounds
func Rounds(n C.int) {
	channel := make(chan int)
	harness.Rounds(int(n), nil, func() { <-channel }, func() { channel <- 1 })
	var lock sync.Mutex
	harness.Rounds(int(n), lock.Lock, func() { lock.Lock(); lock.Unlock() }, lock.Unlock)
	for i := 0; i < int(n); i++ {
		ask := make(chan int)
		id := harness.GoroutineID()
		go func() {
			harness.AwaitBlocked(id)
			ask <- 1
		}()
		<-ask
	}
}

// Write writes one of Go's own profiles to a file.
//
//export Write
func Write(profile, path *C.char) { ownprofile.Write(C.GoString(profile), C.GoString(path)) }

// Allocated returns how many bytes were allocated on the heap so far, and collects garbage.
//
//export Allocated
func Allocated() C.ulonglong {
	runtime.GC()
	var statistics runtime.MemStats
	runtime.ReadMemStats(&statistics)
	return C.ulonglong(statistics.TotalAlloc)
}

func main() {}
