// Parked parks a known number of goroutines in every operation that Go's block profiler hooks,
// and in waits that it ignores, and leaves them there.
//
// Protocol: once all of them are parked it prints one line of JSON (by operation: the ids of its
// goroutines, the state that Go's traceback shows, the address of the semaphore they wait for),
// then "ready PID". The stack of a goroutine in an operation has a frame of the function NAME of
// package main, the innermost one of that package. For each line of input, it wakes the goroutine
// of turnLeft, which parks in turnRight, the next time in turnLeft again, and prints "turned"
// once that has parked. The program ends when its input closes.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"regexp"
	"sync/atomic"
	"time"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/ownprofile"
)

// An operation blocks `count` goroutines in `block` for good.
type operation struct {
	name  string
	count int
	sema  uintptr
	block func()
}

type report struct {
	Goids []int64 `json:"goids"`
	State string  `json:"state"`
	Sema  uintptr `json:"sema"`
}

var (
	busy = flag.Int("busy", 0, "then keep so many goroutines parking and waking, and stacks moving")
	own  = flag.String("own", "", "where to write Go's own goroutine profile before that")
)

func main() {
	flag.Parse()
	reports := map[string]*report{}
	for _, op := range append(operations(), silent()...) {
		reports[op.name] = start(op)
	}
	startCoroutines()
	awaitParked(reports)
	ownprofile.Write("goroutine", *own)
	startBusy(*busy)
	harness.Say(json.Marshal(reports))
	harness.Ready()
	for harness.Next() {
		turns <- 1
		awaitParked(map[string]*report{"": reports["turnLeft"]})
		fmt.Println("turned")
	}
}

// start returns when all goroutines of the operation run.
func start(op operation) *report {
	ids := make([]int64, op.count)
	for i := range ids {
		id := &ids[i]
		go func() {
			atomic.StoreInt64(id, harness.GoroutineID())
			op.block()
		}()
	}
	for i := range ids {
		for atomic.LoadInt64(&ids[i]) == 0 {
			time.Sleep(50 * time.Microsecond)
		}
	}
	return &report{Goids: ids, Sema: op.sema}
}

// awaitParked fills in the states once no goroutine of the reports runs any more.
func awaitParked(reports map[string]*report) {
	for {
		states := goroutineStates()
		running := 0
		for _, each := range reports {
			for _, id := range each.Goids {
				each.State = states[id]
				switch each.State {
				case "", "running", "runnable", "syscall":
					running++
				}
			}
		}
		if running == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

var header = regexp.MustCompile(`(?m)^goroutine (\d+)[^\[]*\[([^\],]*)`)

// goroutineStates reads the traceback of all goroutines.
func goroutineStates() map[int64]string {
	states := map[int64]string{}
	for _, match := range header.FindAllSubmatch(harness.Traceback(), -1) {
		id := int64(harness.Number(string(match[1])))
		states[id] = string(bytes.TrimSuffix(match[2], []byte(" (scan)")))
	}
	return states
}
