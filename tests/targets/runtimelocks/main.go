//go:build go1.25

// Runtimelocks makes threads wait for locks of the runtime's own kind, runtime.mutex, a known
// number of times. It is linked with -checklinkname=0.
//
// Protocol: it prints "ready PID", waits for a line, runs, prints "done" and one line of JSON,
// waits for a line, writes its own profile if a flag asks for it, prints "written", and waits for
// the end of its input. It ends whenever that closes.
//
// The JSON says what the run must show: {"planned": {function: events}, "truth": {function:
// delay_ns}, "contended": {function: events}, "waited_ns": sum}. The truth is arithmetic, from the
// target's own clock; the stress, where all is chance, counts the last two.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/ownprofile"
)

var (
	fraction    = flag.Int("mutexfraction", 0, "fraction of Go's own mutex profiler; 0 is off")
	profilePath = flag.String("profile", "", "write Go's own mutex profile to this file")
	rounds      = flag.Int("rounds", 0, "let each operation run so often")
	crowds      = flag.Int("crowds", 0, "let crowds of several waiters meet so often")
	barging     = flag.Int("barging", 0, "let threads be overtaken at a lock so often")
	firsts      = flag.Int("firsts", 0, "release so many locks just as a first thread sleeps for them")
	growths     = flag.Int("growths", 0, "grow so many stacks under the runtime's lock for them")
	stress      = flag.Int("stress", 0, "contend so many times without a plan")
)

var (
	planned = map[string]int{}
	truth   = map[string]int64{}
)

func main() {
	flag.Parse()
	harness.EndWithInput()
	// Threads that sleep for a runtime.mutex keep their processor. And the collector must not stop
	// the world, which would wait for a thread that waits for another one to sleep.
	runtime.GOMAXPROCS(16)
	debug.SetGCPercent(-1)
	time.Sleep(20 * time.Millisecond)
	runtime.SetMutexProfileFraction(*fraction)
	harness.Ready()
	harness.AwaitLine()

	runOperations(*rounds)
	runCrowds(*crowds)
	runBarging(*barging)
	runFirstSleeps(*firsts)
	runGrowths(*growths)
	runStress(*stress)

	fmt.Println("done")
	harness.Say(json.Marshal(map[string]any{
		"planned": planned, "truth": truth, "contended": contended, "waited_ns": waitedNs,
	}))
	harness.AwaitLine()
	ownprofile.Write("mutex", *profilePath)
	fmt.Println("written")
	for {
		time.Sleep(time.Hour)
	}
}
