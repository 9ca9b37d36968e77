// Load does many kinds of waits at a steady pace, for so long that a profiler with windows sees
// enough of each: short ones by the ten thousand, long ones, some that never end, one that began
// before the recording.
//
// Protocol: it prints "ready PID"; the line "go" starts all waits, and it answers "done" when all
// but the endless ones have ended; "write" writes Go's own profiles and answers "written".
package main

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"runtime/pprof"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/ownprofile"
)

var (
	length   = flag.Duration("length", 5*time.Second, "how long it goes on")
	pace     = flag.Duration("pace", 20*time.Microsecond, "how long whoever hands over works before")
	blocks   = flag.String("block", "", "where to write Go's own block profile; empty: it is off")
	mutexes  = flag.String("mutex", "", "the same of its mutex profile")
	sleepers = flag.Int("sleepers", 20, "goroutines that wait for most of a second, again and again")
	idle     = flag.Int("idle", 50, "goroutines that wait all the time")
	users    = flag.Int("users", 3, "goroutines that want the same lock")
	hold     = flag.Duration("hold", 50*time.Microsecond, "how long each has it")
	calm     = flag.Bool("calm", false, "do nothing that takes CPU time: only long waits and the lock")
	over     atomic.Bool
)

func main() {
	flag.Parse()
	before, never := make(chan int), make(chan int)
	go waitSinceBefore(before)
	harness.Ready()
	harness.Next()
	if *blocks != "" {
		runtime.SetBlockProfileRate(1)
	}
	if *mutexes != "" {
		runtime.SetMutexProfileFraction(1)
	}
	for i := 0; i < *idle; i++ {
		go waitForEver(never)
	}
	time.AfterFunc(*length, func() { over.Store(true) })
	time.AfterFunc(*length/2, func() { before <- 1 })
	var all sync.WaitGroup
	works := []func(){share, passOn, serve}
	if *calm {
		works = works[:1]
	}
	for _, work := range works {
		all.Add(1)
		go func(work func()) { defer all.Done(); work() }(work)
	}
	for i := 0; i < *sleepers; i++ {
		all.Add(1)
		go func(number int) {
			defer all.Done()
			labels := pprof.Labels("sleeper", strconv.Itoa(number))
			pprof.Do(context.Background(), labels, func(context.Context) { waitLong(number) })
		}(i)
	}
	for !over.Load() {
		time.Sleep(10 * time.Millisecond)
	}
	all.Wait()
	fmt.Println("done")
	for harness.Next() {
		ownprofile.Write("block", *blocks)
		ownprofile.Write("mutex", *mutexes)
		fmt.Println("written")
	}
}

//go:noinline
func waitSinceBefore(from <-chan int) { <-from }

//go:noinline
func waitForEver(from <-chan int) { <-from }

//go:noinline
func waitLong(number int) {
	for turn := number; !over.Load(); turn++ {
		woken := make(chan bool)
		time.AfterFunc(time.Duration(20+turn%5*150)*time.Millisecond, func() { close(woken) })
		<-woken
	}
}

// passOn hands numbers over from one goroutine to another.
func passOn() {
	numbers := make(chan int)
	go produce(numbers)
	consume(numbers)
}

//go:noinline
func produce(to chan<- int) {
	for !over.Load() {
		harness.Spin(*pace)
		to <- 1
	}
	close(to)
}

//go:noinline
func consume(from <-chan int) {
	for range from {
	}
}

// serve has a pool of workers, which select between jobs and the end.
func serve() {
	jobs, end := make(chan int), make(chan bool)
	var pool sync.WaitGroup
	for i := 0; i < 4; i++ {
		pool.Add(1)
		go func() { defer pool.Done(); takeJobs(jobs, end) }()
	}
	for !over.Load() {
		time.Sleep(100 * time.Microsecond)
		for i := 0; i < 4; i++ {
			jobs <- i
		}
	}
	close(end)
	pool.Wait()
}

//go:noinline
func takeJobs(jobs <-chan int, end <-chan bool) {
	for {
		select {
		case <-jobs:
			harness.Spin(*pace / 4)
		case <-end:
			return
		}
	}
}

// share has goroutines that want the same lock.
func share() {
	var lock sync.Mutex
	var all sync.WaitGroup
	for i := 0; i < *users; i++ {
		all.Add(1)
		go func(number int) {
			defer all.Done()
			labels := pprof.Labels("user", strconv.Itoa(number))
			pprof.Do(context.Background(), labels, func(context.Context) { useLock(&lock) })
		}(i)
	}
	all.Wait()
}

//go:noinline
func useLock(lock *sync.Mutex) {
	for !over.Load() {
		lock.Lock()
		time.Sleep(*hold)
		lock.Unlock()
	}
}
