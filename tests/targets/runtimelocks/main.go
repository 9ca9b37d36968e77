// Runtimelocks makes threads wait for locks of the runtime's own kind, runtime.mutex, a known
// number of times. It is linked with -checklinkname=0.
//
// Protocol: it prints "ready PID", waits for a line, runs, prints "done" and one line of JSON,
// waits for a line, writes its own profile if it was asked to, prints "written" and waits for
// the end of its input. It ends whenever that closes.
//
// The JSON says what the run must show: {"planned": {function: events}, "truth": {function:
// delay_ns}, "contended": {function: events}, "waited_ns": sum}. The truth is arithmetic, from the
// target's own clock; the last two were counted in the stress, where all is chance.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"sync/atomic"
	"time"
)

var (
	fraction    = flag.Int("mutexfraction", 0, "fraction of Go's own mutex profiler; 0 is off")
	profilePath = flag.String("profile", "", "write Go's own mutex profile to this file")
	rounds      = flag.Int("rounds", 0, "let each operation run so often")
	crowds      = flag.Int("crowds", 0, "let crowds of several waiters meet so often")
	barging     = flag.Int("barging", 0, "let threads be overtaken at a lock so often")
	growths     = flag.Int("growths", 0, "grow so many stacks under the runtime's lock for them")
	stress      = flag.Int("stress", 0, "contend so many times without a plan")
)

// lines counts the lines that arrived on standard input.
var lines atomic.Int64

var (
	planned = map[string]int{}
	truth   = map[string]int64{}
)

func main() {
	flag.Parse()
	go readInput()
	// Threads that sleep for a runtime.mutex keep their processor. And nobody may stop the world,
	// which would wait for the one that waits for another to sleep.
	runtime.GOMAXPROCS(16)
	debug.SetGCPercent(-1)
	time.Sleep(20 * time.Millisecond)
	runtime.SetMutexProfileFraction(*fraction)
	fmt.Println("ready", os.Getpid())
	awaitLine(1)

	runOperations(*rounds)
	runCrowds(*crowds)
	runBarging(*barging)
	runGrowths(*growths)
	runStress(*stress)

	said, err := json.Marshal(map[string]any{"planned": planned, "truth": truth, "contended": contended,
		"waited_ns": waitedNs})
	check(err)
	fmt.Println("done")
	fmt.Println(string(said))
	awaitLine(2)
	if *profilePath != "" {
		file, err := os.Create(*profilePath)
		check(err)
		check(pprof.Lookup("mutex").WriteTo(file, 0))
		check(file.Close())
	}
	fmt.Println("written")
	for {
		time.Sleep(time.Hour)
	}
}

func readInput() {
	buffer := make([]byte, 4096)
	for {
		n, err := os.Stdin.Read(buffer)
		for _, letter := range buffer[:n] {
			if letter == '\n' {
				lines.Add(1)
			}
		}
		if err != nil {
			os.Exit(0)
		}
	}
}

func awaitLine(number int64) {
	for lines.Load() < number {
		time.Sleep(2 * time.Millisecond)
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "runtimelocks:", err)
		os.Exit(1)
	}
}
