// Signals computes for a given CPU time while it gets signals of all kinds: SIGUSR1 from itself, SIGURG
// of Go's preemption, and SIGPROF of Go's own CPU profile. So many samples hit handlers of signals,
// whatever they interrupted: Go code, the vDSO, and with the tag withcgo also C.
//
// With a number as its argument it computes for so many milliseconds and ends. Without, it prints
// "ready PID", computes so long at each line "compute MS", and prints "done". It ends when its input
// closes.
package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"sync"
	"syscall"
	"time"

	"ebpfprof.test/harness"
)

const profileHz = 1000

var works = []func(){inGo, deepInGo, inClock, onThreadStack}

func main() {
	if len(os.Args) > 1 {
		compute(harness.Number(os.Args[1]))
		return
	}
	harness.Ready()
	for harness.Next() {
		compute(harness.Number(harness.Words()[1]))
		fmt.Println("done")
	}
}

func compute(ms int) {
	until := harness.CPUTime() + time.Duration(ms)*time.Millisecond
	runtime.SetCPUProfileRate(profileHz)
	harness.Check(pprof.StartCPUProfile(io.Discard))
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	var all sync.WaitGroup
	for _, work := range append(works, sendSignal, preempt) {
		all.Add(1)
		go func(work func()) {
			defer all.Done()
			repeat(work, until)
		}(work)
	}
	all.Wait()
	pprof.StopCPUProfile()
}

//go:noinline
func repeat(work func(), until time.Duration) {
	for harness.CPUTime() < until {
		work()
	}
}

//go:noinline
func sendSignal() { harness.Check(syscall.Kill(os.Getpid(), syscall.SIGUSR1)) }

// preempt stops all other goroutines, for which the runtime sends SIGURG.
//
//go:noinline
func preempt() { runtime.GC() }

//go:noinline
func inGo() { sum(1 << 14) }

//go:noinline
func sum(numbers int) (total int) {
	for i := 0; i < numbers; i++ {
		total += i ^ total
	}
	return total
}

//go:noinline
func deepInGo() { deeper(60) }

//go:noinline
func deeper(levels int) int {
	var room [8]int
	if levels == 0 {
		return sum(1 << 14)
	}
	room[levels%8] = deeper(levels - 1)
	return room[levels%8] + 1
}

// inClock is mostly in the vDSO, which runs on the stack of the thread.
//
//go:noinline
func inClock() {
	for i := 0; i < 1<<8; i++ {
		time.Now()
	}
}

// onThreadStack has the runtime work on the stack of the thread.
//
//go:noinline
func onThreadStack() {
	var counts runtime.MemStats
	runtime.ReadMemStats(&counts)
}
