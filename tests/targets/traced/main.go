// Traced does work of one kind while Go's execution tracer writes down what its goroutines do. Each
// function that a goroutine starts with is a group that a test compares. None has arguments: the
// compiler would wrap it, and the tracer names the function within.
//
// Protocol: it prints "ready PID" and then obeys the lines that it reads:
//
//	trace FILE NAME   traces into FILE from now on and starts the work; prints "begun"
//	end               ends the trace; prints "ended"
//
// It ends when its input closes. It collects no garbage, which is no state that both sides know,
// but where the work is about that.
package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/trace"

	"ebpfprof.test/harness"
)

var works = map[string]func(){
	"births":   births,
	"chains":   chains,
	"channels": channels,
	"cpu":      processors,
	"garbage":  garbage,
	"labels":   labels,
	"listens":  listens,
	"locks":    locks,
	"naps":     naps,
	"network":  network,
	"objects":  objects,
	"sleeps":   sleeps,
	"syscalls": syscalls,
}

func main() {
	debug.SetGCPercent(-1)
	runtime.GOMAXPROCS(2)
	harness.Ready()
	for harness.Next() {
		words := harness.Words()
		switch words[0] {
		case "trace":
			file, err := os.Create(words[1])
			harness.Check(err)
			harness.Check(trace.Start(file))
			works[words[2]]()
			fmt.Println("begun")
		case "end":
			trace.Stop()
			fmt.Println("ended")
		default:
			panic("traced: no such command: " + words[0])
		}
	}
}
