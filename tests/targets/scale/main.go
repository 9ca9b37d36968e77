// Scale waits in a number of goroutines, in a number of different stacks of a depth (its flags), as
// often as its input says.
//
// Protocol: it prints "ready PID". To the line "park" it answers "parked" once all goroutines of
// the crowd wait; to "release N" "parked" when each has woken N times and waits again. To "run MS"
// it answers "ran N": in MS milliseconds pairs of goroutines, two for each processor, have handed
// each other N messages, each of which one of them may have waited for. To "count" it answers
// "counted N", the number of waits of those pairs in Go's own block profile (-blockrate). It ends
// when its input closes.
package main

import (
	"flag"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"ebpfprof.test/harness"
)

const messages = 16 // of a pair in one stack

var (
	goroutines = flag.Int("goroutines", 100, "how many wait at once")
	stacks     = flag.Int("stacks", 16, "in how many different stacks")
	depth      = flag.Int("depth", 24, "of how many frames, main.deep and above")
	blockRate  = flag.Int("blockrate", 0, "for runtime.SetBlockProfileRate")

	gates = [2]chan bool{make(chan bool), make(chan bool)}
	woken atomic.Int64 // wakes of the whole crowd
)

func main() {
	flag.Parse()
	runtime.SetBlockProfileRate(*blockRate)
	harness.Ready()
	round := 0
	for harness.Next() {
		var what string
		var count int
		fmt.Sscan(harness.Command(), &what, &count)
		switch what {
		case "park":
			for i := 0; i < *goroutines; i++ {
				go wait(i % *stacks)
			}
			awaitParked(round)
			fmt.Println("parked")
		case "release":
			for ; count > 0; count-- {
				for i := 0; i < *goroutines; i++ {
					gates[round%2] <- true
				}
				round++
				awaitParked(round)
			}
			fmt.Println("parked")
		case "run":
			fmt.Println("ran", run(time.Duration(count)*time.Millisecond))
		case "count":
			fmt.Println("counted", countOwn())
		default:
			fmt.Println("error", what)
		}
	}
}

// wait parks again and again, at the end of one way.
func wait(way int) {
	for round := 0; ; round++ {
		gate := gates[round%2]
		deep(way, func() { <-gate })
		woken.Add(1)
	}
}

// run makes pairs talk, and returns how many messages they handed over.
func run(length time.Duration) int64 {
	var all sync.WaitGroup
	var ends atomic.Bool
	var handed atomic.Int64
	pairs := 2 * runtime.GOMAXPROCS(0)
	for pair := 0; pair < pairs; pair++ {
		there, back := make(chan bool), make(chan bool)
		first := pair * *stacks / pairs
		all.Add(2)
		go func() {
			defer all.Done()
			for way := first; !ends.Load(); way++ {
				deep(way%*stacks, func() {
					for i := 0; i < messages; i++ {
						there <- true
						<-back
					}
				})
				handed.Add(2 * messages)
			}
			close(there)
		}()
		go func() {
			defer all.Done()
			defer close(back)
			open := true
			for way := first; open; way++ {
				deep(way%*stacks, func() {
					for i := 0; i < messages && open; i++ {
						if _, open = <-there; open {
							back <- true
						}
					}
				})
			}
		}()
	}
	time.Sleep(length)
	ends.Store(true)
	all.Wait()
	return handed.Load()
}

// deep calls do at the end of a way of its own through left and right, depth frames below.
func deep(way int, do func()) {
	left(way, *depth-2, do)
	runtime.KeepAlive(way)
}

//go:noinline
func left(way, deeper int, do func()) {
	switch {
	case deeper == 0:
		do()
	case way&1 == 0:
		left(way>>1, deeper-1, do)
	default:
		right(way>>1, deeper-1, do)
	}
	runtime.KeepAlive(deeper)
}

//go:noinline
func right(way, deeper int, do func()) {
	switch {
	case deeper == 0:
		do()
	case way&1 == 0:
		left(way>>1, deeper-1, do)
	default:
		right(way>>1, deeper-1, do)
	}
	runtime.KeepAlive(deeper)
}

// awaitParked returns when the whole crowd has woken so often and waits again. It counts wakes,
// too, since a goroutine that was made ready a moment ago still is in gopark.
func awaitParked(rounds int) {
	for woken.Load() < int64(rounds**goroutines) || parked() < *goroutines {
		time.Sleep(time.Millisecond)
	}
}

// parked returns how many goroutines of the crowd wait now: those in runtime.gopark have parked.
func parked() int {
	records := make([]runtime.StackRecord, *goroutines+1000)
	n, ok := runtime.GoroutineProfile(records)
	if !ok {
		return 0
	}
	names := map[uintptr]string{}
	name := func(pc uintptr) string {
		if _, known := names[pc]; !known {
			names[pc] = runtime.FuncForPC(pc - 1).Name()
		}
		return names[pc]
	}
	count := 0
	for i := range records[:n] {
		stack := records[i].Stack()
		if name(stack[0]) != "runtime.gopark" {
			continue
		}
		for _, pc := range stack[1:] {
			if name(pc) == "main.wait.func1" {
				count++
				break
			}
		}
	}
	return count
}

// countOwn returns how many waits in deep Go itself has recorded.
func countOwn() int64 {
	var records []runtime.BlockProfileRecord
	for n, ok := 0, false; !ok; {
		n, ok = runtime.BlockProfile(records)
		if !ok {
			records = make([]runtime.BlockProfileRecord, n+n/8+64)
		} else {
			records = records[:n]
		}
	}
	var count int64
	for _, record := range records {
		frames := runtime.CallersFrames(record.Stack())
		for frame, more := frames.Next(); ; frame, more = frames.Next() {
			if frame.Function == "main.deep" || frame.Function == "main.left" {
				count += record.Count
				break
			}
			if !more {
				break
			}
		}
	}
	return count
}
