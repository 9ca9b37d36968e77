// Cpuops uses the processor in ways that are hard to unwind, each for a known CPU time.
//
// Protocol: it prints "ready PID" and then obeys the lines that it reads:
//
//	profile FILE HZ   starts Go's own CPU profile at so many samples a second; prints "profiling"
//	work REGEXP MS    does the works whose names match, each for so many milliseconds of CPU time;
//	                  prints a line of JSON: {"cpu_ns": CPU time of the process meanwhile,
//	                  "works": {name: CPU time of this work}}
//	stop              ends and writes the profile; prints "stopped"
//
// It ends when its input closes.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"runtime/pprof"
	"time"

	"ebpfprof.test/harness"
)

// A work takes some milliseconds. All its stacks that lead to a function of package main lead to
// the function NAME, or to a closure in it.
type work struct {
	name string
	run  func()
}

func main() {
	harness.Ready()
	var profile *os.File
	for harness.Next() {
		words := harness.Words()
		switch words[0] {
		case "profile":
			profile = startProfile(words[1], harness.Number(words[2]))
			fmt.Println("profiling")
		case "work":
			duration := time.Duration(harness.Number(words[2])) * time.Millisecond
			harness.Say(json.Marshal(performAll(regexp.MustCompile(words[1]), duration)))
		case "stop":
			pprof.StopCPUProfile()
			harness.Check(profile.Close())
			fmt.Println("stopped")
		default:
			panic("cpuops: no such command")
		}
	}
}

type performed struct {
	CPU   time.Duration            `json:"cpu_ns"`
	Works map[string]time.Duration `json:"works"`
}

func performAll(chosen *regexp.Regexp, duration time.Duration) performed {
	began := harness.CPUTime()
	result := performed{Works: map[string]time.Duration{}}
	for _, some := range [][]work{assemblyWorks, callWorks, systemWorks} {
		for _, w := range some {
			if chosen.MatchString(w.name) {
				result.Works[w.name] = perform(w, duration)
			}
		}
	}
	result.CPU = harness.CPUTime() - began
	return result
}

//go:noinline
func perform(w work, duration time.Duration) time.Duration {
	began := harness.CPUTime()
	for harness.CPUTime()-began < duration {
		w.run()
	}
	return harness.CPUTime() - began
}

// startProfile uses a rate that pprof.StartCPUProfile does not offer: Go keeps a rate that was
// set before, and prints a message on standard error.
func startProfile(path string, hz int) *os.File {
	file, err := os.Create(path)
	harness.Check(err)
	runtime.SetCPUProfileRate(hz)
	harness.Check(pprof.StartCPUProfile(file))
	return file
}
