// Mutexloop measures what a contended lock costs: more goroutines than processors take one
// mutex in turns, and give way while they hold it, so that the others queue up. On one processor
// nearly every Unlock has a goroutine to wake.
//
// Protocol: it prints "ready PID"; to every line it answers "ns N contentions M", the
// nanoseconds per Lock and Unlock of a round and the number of goroutines that it woke per
// second. It ends when its input closes.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// The state word of a sync.Mutex, see internal/sync/mutex.go: three bits and a number of waiters.
// Unlock wakes one if there are any, unless one is awake already or the lock is handed over.
const (
	mutexWoken       = 2
	mutexStarving    = 4
	mutexWaiterShift = 3
)

func main() {
	fraction := flag.Int("mutexfraction", 0, "fraction of Go's own mutex profiler; 0 is off")
	pairs := flag.Int("pairs", 100000, "pairs of Lock and Unlock of a round")
	processors := flag.Int("procs", 1, "GOMAXPROCS")
	goroutines := flag.Int("goroutines", 6, "goroutines that contend")
	flag.Parse()
	runtime.SetMutexProfileFraction(*fraction)
	runtime.GOMAXPROCS(*processors)
	fmt.Println("ready", os.Getpid())
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		each := *pairs / *goroutines
		length, woken := round(*goroutines, each)
		pairNS := float64(length.Nanoseconds()) / float64(each**goroutines)
		fmt.Printf("ns %.1f contentions %.0f\n", pairNS, float64(woken)/length.Seconds())
	}
}

func round(goroutines, pairs int) (length time.Duration, woken int) {
	var mu sync.Mutex
	var group sync.WaitGroup
	start := time.Now()
	for i := 0; i < goroutines; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			contend(&mu, pairs, &woken)
		}()
	}
	group.Wait()
	return time.Since(start), woken
}

//go:noinline
func contend(mu *sync.Mutex, pairs int, woken *int) {
	for i := 0; i < pairs; i++ {
		mu.Lock()
		runtime.Gosched()
		if wakes(mu) {
			*woken++
		}
		mu.Unlock()
	}
}

// wakes says whether Unlock is about to wake a goroutine; only the holder may ask.
func wakes(mu *sync.Mutex) bool {
	state := atomic.LoadInt32((*int32)(unsafe.Pointer(mu)))
	return state>>mutexWaiterShift > 0 && (state&mutexWoken == 0 || state&mutexStarving != 0)
}
