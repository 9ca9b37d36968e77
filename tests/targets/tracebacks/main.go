// Tracebacks parks goroutines in many kinds of calls, and writes Go's own goroutine profile as
// text.
//
// Protocol: once all of them are parked it prints "ready PID". For each line of input, "DEBUG
// FILE", it writes the profile with that debug level to the file, and prints "written". For "spin" it
// starts a goroutine that never stops running, and prints "spinning". It ends when its input closes.
package main

import (
	"fmt"
	"os"
	"runtime/pprof"
	"strings"
	"sync/atomic"

	"ebpfprof.test/harness"
)

// never is received from by everything that blocks for good.
var never = make(chan int)

func main() {
	for _, begin := range [][]func(){arguments(), shapes(), depths(), states(), labelled(), special()} {
		for _, block := range begin {
			park(block)
		}
	}
	harness.Ready()
	for harness.Next() {
		words := harness.Words()
		if words[0] == "spin" {
			spin()
			continue
		}
		file, err := os.Create(words[1])
		harness.Check(err)
		harness.Check(pprof.Lookup("goroutine").WriteTo(file, harness.Number(words[0])))
		harness.Check(file.Close())
		fmt.Println("written")
	}
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
	fmt.Println("spinning")
}
