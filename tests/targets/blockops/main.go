// Blockops uses every operation that Go's block profiler hooks, a known number of times each,
// and the waits that the profiler ignores.
//
// Protocol: it prints "ready PID", waits for a line, runs, prints "done" and one line of JSON
// (operation: planned number of events), waits for a line, writes its own profile if a flag
// asks for it, prints "written" and waits for the end of its input. It ends whenever that closes.
//
// Nothing outside the operations blocks in a way that a block profile shows: main polls.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"regexp"
	"runtime"
	"sync/atomic"
	"time"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/ownprofile"
)

// An operation runs until goroutines have blocked and woken in it `planned` times. The
// stacks of those events, and no others, have a frame of the function or method NAME of package
// main, or of a closure in it.
type operation struct {
	name    string
	planned int
	run     func(planned int)
}

var (
	blockRate   = flag.Int("blockrate", 0, "rate of Go's own block profiler in ns; 0 is off")
	profilePath = flag.String("profile", "", "write Go's own block profile to this file")
	only        = flag.String("only", "", "run only the operations that match this expression")
	stress      = flag.Int("stress", 0, "then do this many operations of each contended kind")
	collect     = flag.Bool("collect", false, "collect garbage all the while, so that stacks move")
)

func main() {
	flag.Parse()
	chosen := regexp.MustCompile(*only)
	harness.EndWithInput()
	// The goroutines of the standard library's init functions park now, not during the run.
	time.Sleep(20 * time.Millisecond)
	runtime.SetBlockProfileRate(*blockRate)
	harness.Ready()
	harness.AwaitLine()
	// The first collection starts workers, in Go 1.23 and later over a channel: events of no
	// operation.
	runtime.GC()

	stopCollecting := func() {}
	if *collect {
		stopCollecting = startCollecting()
	}
	planned := map[string]int{}
	for _, op := range operations() {
		if chosen.MatchString(op.name) {
			op.run(op.planned)
			planned[op.name] = op.planned
		}
	}
	if *stress > 0 {
		runStress(*stress)
	}

	stopCollecting()

	fmt.Println("done")
	harness.Say(json.Marshal(planned))
	harness.AwaitLine()
	ownprofile.Write("block", *profilePath)
	fmt.Println("written")
	for {
		time.Sleep(time.Hour)
	}
}

func operations() []operation {
	var all []operation
	for _, some := range [][]operation{
		channelOperations, selectOperations, syncOperations, semaphoreOperations,
		stackOperations, genericOperations, wrapperOperations, newerOperations, cgoOperations,
		silentOperations,
	} {
		all = append(all, some...)
	}
	return all
}

// startCollecting makes the collector scan, shrink and thereby move the stacks of parked
// goroutines without a pause, until the function that it returns has been called.
func startCollecting() (stop func()) {
	var stopping, stopped atomic.Bool
	go func() {
		for !stopping.Load() {
			runtime.GC()
		}
		stopped.Store(true)
	}()
	return func() {
		stopping.Store(true)
		for !stopped.Load() {
			time.Sleep(time.Millisecond)
		}
	}
}
