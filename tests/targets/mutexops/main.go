// Mutexops releases sync.Mutex and sync.RWMutex in every way that Go's mutex profiler sees, a
// known number of times each, and waits in the ways that the profiler ignores.
//
// Protocol: it prints "ready PID", waits for a line, runs, prints "done" and one line of JSON,
// waits for a line, writes its own profile if a flag asks for it, prints "written", and waits for
// the end of its input. It ends whenever that closes.
//
// The JSON says what the run must show: {"planned": {operation: events}, "truth": {function:
// {"count": events, "delay_ns": sum, "square_ns2": sum of squares}}}. The truth is arithmetic,
// from the target's own clock: see crowds.go.
//
// Nothing outside the operations waits for a lock: main polls.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"regexp"
	"runtime"
	"time"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/ownprofile"
)

// An operation runs until `planned` releases have each woken a goroutine, the only one that
// waited there. The stacks of those releases, and no others, have a frame of the function
// or method NAME of package main, or of a closure in it.
type operation struct {
	name    string
	planned int
	run     func(planned int)
}

var (
	fraction    = flag.Int("mutexfraction", 0, "fraction of Go's own mutex profiler; 0 is off")
	profilePath = flag.String("profile", "", "write Go's own mutex profile to this file")
	only        = flag.String("only", "", "run only the operations that match this expression")
	crowds      = flag.String("crowds", "^$", "then the crowds that match this expression")
	churn       = flag.Int("churn", 0, "then use this many locks of each kind once")
	stress      = flag.Int("stress", 0, "then do this many operations of each contended kind")
)

func main() {
	flag.Parse()
	harness.EndWithInput()
	// The goroutines of the standard library's init functions park now, not during the run.
	time.Sleep(20 * time.Millisecond)
	runtime.SetMutexProfileFraction(*fraction)
	harness.Ready()
	harness.AwaitLine()

	planned := map[string]int{}
	chosen := regexp.MustCompile(*only)
	for _, op := range operations() {
		if chosen.MatchString(op.name) {
			op.run(op.planned)
			planned[op.name] = op.planned
		}
	}
	runCrowds(regexp.MustCompile(*crowds))
	if *churn > 0 {
		runChurn(*churn, planned)
	}
	if *stress > 0 {
		runStress(*stress)
	}

	fmt.Println("done")
	harness.Say(json.Marshal(map[string]any{"planned": planned, "truth": truths()}))
	harness.AwaitLine()
	ownprofile.Write("mutex", *profilePath)
	fmt.Println("written")
	for {
		time.Sleep(time.Hour)
	}
}

func operations() []operation {
	var all []operation
	for _, some := range [][]operation{
		mutexOperations, rwMutexOperations, wayOperations, genericOperations, stackOperations, cgoOperations,
		silentOperations,
	} {
		all = append(all, some...)
	}
	return all
}
