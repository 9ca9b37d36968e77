// Tracebacks parks goroutines in many kinds of calls, and writes Go's own goroutine profile as
// text.
//
// Protocol: once all of them are parked it prints "ready PID". For each line of input, "DEBUG
// FILE", it writes the profile with that debug level to the file, and prints "done". "spin" starts a
// goroutine that never stops running, "more" and "fewer" starts or ends three that wait; then it
// prints "done", too. It ends when its input closes.
package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync/atomic"

	"ebpfprof.test/harness"
)

var (
	never   = make(chan int) // everything that blocks for good receives from it
	leaving = make(chan int)
)

func main() {
	for _, begin := range [][]func(){arguments(), shapes(), depths(), states(), labelled(), special()} {
		for _, block := range begin {
			park(block)
		}
	}
	harness.Ready()
	for harness.Next() {
		switch words := harness.Words(); words[0] {
		case "spin":
			spin()
		case "more":
			for i := 0; i < 3; i++ {
				park(func() { <-leaving })
			}
		case "fewer":
			most := runtime.NumGoroutine() - 3
			for i := 0; i < 3; i++ {
				leaving <- 1
			}
			harness.Poll(func() bool { return runtime.NumGoroutine() <= most })
		default:
			write(harness.Number(words[0]), words[1])
		}
		fmt.Println("done")
	}
}

func write(debug int, path string) {
	file, err := os.Create(path)
	harness.Check(err)
	harness.Check(pprof.Lookup("goroutine").WriteTo(file, debug))
	harness.Check(file.Close())
}

// park starts a goroutine that blocks for good, and returns once it does.
func park(block func()) {
	var id int64
	go func() {
		atomic.StoreInt64(&id, harness.GoroutineID())
		block()
	}()
	harness.Poll(func() bool { return atomic.LoadInt64(&id) != 0 })
	harness.Poll(func() bool { return isParked(harness.StateOf(id)) })
}

func isParked(state string) bool {
	state = strings.TrimSuffix(state, " (scan)")
	return state != "" && state != "running" && state != "runnable"
}

func spin() {
	var begun int64
	go func() {
		atomic.StoreInt64(&begun, 1)
		for {
		}
	}()
	harness.Poll(func() bool { return atomic.LoadInt64(&begun) != 0 })
}
