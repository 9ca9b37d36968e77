// Cgocpu computes in C that Go calls, and in Go that such C calls, under labels.
//
// Protocol: it prints "ready PID" and then obeys the lines that it reads:
//
//	NAME MS     does that work for so many milliseconds of CPU time, under the label work=NAME;
//	            prints "done"
//
// It ends when its input closes.
package main

import (
	"context"
	"fmt"
	"runtime/pprof"
	"time"

	"ebpfprof.test/cgocpu/framed"
	"ebpfprof.test/cgocpu/frameless"
	"ebpfprof.test/harness"
)

var works = map[string]func(){
	"framed":        callFramed,
	"frameless":     callFrameless,
	"framedBack":    framedBack,
	"framelessBack": framelessBack,
}

const rounds = 1000000

var sink int

func main() {
	harness.Ready()
	for harness.Next() {
		words := harness.Words()
		work := works[words[0]]
		if work == nil {
			panic("cgocpu: no such command")
		}
		pprof.Do(context.Background(), pprof.Labels("work", words[0]), func(context.Context) {
			perform(work, time.Duration(harness.Number(words[1]))*time.Millisecond)
		})
		fmt.Println("done")
	}
}

//go:noinline
func perform(work func(), duration time.Duration) {
	for began := harness.CPUTime(); harness.CPUTime()-began < duration; {
		work()
	}
}

//go:noinline
func callFramed() { sink += framed.Work(rounds) }

//go:noinline
func callFrameless() { sink += frameless.Work(rounds) }

//go:noinline
func framedBack() { sink += framed.Back(rounds, computeInGo) }

//go:noinline
func framelessBack() { sink += frameless.Back(rounds, computeInGo) }

//go:noinline
func computeInGo(n int) int {
	x := sink
	for i := 0; i < n; i++ {
		x = x*5 + i
	}
	return x
}
