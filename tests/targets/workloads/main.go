// Workloads does a fixed amount of work of one kind, which blocks, and prints how long it took.
//
// Protocol: it prints "ready PID" and then obeys the lines that it reads:
//
//	go NAME UNITS [PARAMETER=NUMBER...]  does so many units of a workload; prints "ns WALL cpu CPU"
//	own block=RATE mutex=FRACTION cpu=0|1 goroutine=HZ trace=0|1  sets Go's own profilers and its
//	                                     tracer; prints "own"
//	write FILE                           writes Go's own block profile, and its mutex profile to
//	                                     FILE.mutex; prints "written"
//	serve                                serves HTTP from now on; prints "address HOST:PORT"
//	load ADDRESS UNITS                   as a client, sends so many requests; prints the same as go
//
// WALL and CPU are nanoseconds: from the first unit to the last, and the CPU time of the process
// meanwhile. It ends when its input closes.
package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"strings"
	"time"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/ownprofile"
)

// parameters of a workload: frames is the depth of the stacks in which ping-pong blocks, and about
// that of other workloads; goroutines is their number; stacks is the number of different stacks in
// which they block; procs is GOMAXPROCS; work is the time (ns) before each send of paced.
type parameters struct {
	units, frames, goroutines, stacks, procs, work int
}

var workloads = map[string]func(parameters){
	"pingpong":    pingPong,
	"buffered":    buffered,
	"mutex":       contendedMutex,
	"rwmutex":     readMostly,
	"pool":        workerPool,
	"garbage":     garbage,
	"paced":       paced,
	"turns":       turns,
	"oneshots":    oneShots,
	"systemcalls": systemCalls,
	"yielding":    yielding,
	"bursts":      bursts,
}

func main() {
	profiling := false
	var sampled sampling
	harness.Ready()
	for harness.Next() {
		words := harness.Words()
		switch words[0] {
		case "go":
			work(words[1], harness.Number(words[2]), settings(words[3:]))
		case "own":
			own := settings(words[1:])
			runtime.SetBlockProfileRate(own["block"])
			runtime.SetMutexProfileFraction(own["mutex"])
			if profiling {
				pprof.StopCPUProfile()
			}
			if profiling = own["cpu"] == 1; profiling {
				harness.Check(pprof.StartCPUProfile(io.Discard))
			}
			if sampled != nil {
				close(sampled)
				sampled = nil
			}
			if own["goroutine"] > 0 {
				sampled = sampleGoroutines(own["goroutine"])
			}
			if trace.IsEnabled() {
				trace.Stop()
			}
			if own["trace"] == 1 {
				harness.Check(trace.Start(io.Discard))
			}
			fmt.Println("own")
		case "write":
			ownprofile.Write("block", words[1])
			ownprofile.Write("mutex", words[1]+".mutex")
			fmt.Println("written")
		case "serve":
			fmt.Println("address", serve())
		case "load":
			timed(func() { load(words[1], harness.Number(words[2])) })
		default:
			panic("workloads: no such command: " + words[0])
		}
	}
}

func work(name string, units int, given map[string]int) {
	p := parameters{units: units, frames: 10, goroutines: 2, stacks: 1, procs: 2}
	for word, value := range given {
		switch word {
		case "frames":
			p.frames = value
		case "goroutines":
			p.goroutines = value
		case "stacks":
			p.stacks = value
		case "procs":
			p.procs = value
		case "work":
			p.work = value
		default:
			panic("workloads: no such parameter: " + word)
		}
	}
	if runtime.GOMAXPROCS(0) != p.procs {
		runtime.GOMAXPROCS(p.procs)
	}
	run := workloads[name]
	timed(func() { run(p) })
}

func timed(work func()) {
	cpu, start := harness.CPUTime(), time.Now()
	work()
	wall := time.Since(start)
	fmt.Printf("ns %d cpu %d\n", wall, harness.CPUTime()-cpu)
}

func settings(words []string) map[string]int {
	found := map[string]int{}
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		found[name] = harness.Number(value)
	}
	return found
}

// others are the frames beside those of below: the operation in the runtime, the function that
// calls it, the one that calls that, and the goroutine's first.
const others = 4

// below calls work, which calls a function that blocks, so that the stack has so many frames, but
// at least one of below.
//
//go:noinline
func below(frames int, work func()) {
	if frames > others+1 {
		below(frames-1, work)
	} else {
		work()
	}
}

// share is the part of the units that one of several goroutines does.
func share(units, one, of int) int {
	return units*(one+1)/of - units*one/of
}
