// Clocks asks for the time in goroutines that have threads of their own. The runtime asks the vDSO
// on the stack of the thread (g0), which may lie just below that of the goroutine.
//
// Protocol: it prints "ready PID". At the line "ask MS" it asks for so many milliseconds, and then
// prints "done". It ends when its input closes.
package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"ebpfprof.test/harness"
)

const threads = 64

// Stacks of all sizes, so that some lie close above that of the thread (16 KB).
//
//go:noinline
func grow(rest int) byte {
	var room [1 << 10]byte
	if rest > 0 {
		room[rest] = grow(rest - 1)
	}
	return room[rest]
}

//go:noinline
func askTime(until time.Time) {
	for time.Now().Before(until) {
	}
}

func main() {
	debug.SetGCPercent(-1) // else the collector would shrink stacks
	begin, end := make(chan time.Time), make(chan struct{})
	for i := 0; i < threads; i++ {
		go func(i int) {
			runtime.LockOSThread()
			grow(i % 16)
			for until := range begin {
				askTime(until)
				end <- struct{}{}
			}
		}(i)
	}
	harness.Ready()
	for harness.Next() {
		var ms int
		if _, err := fmt.Sscanf(harness.Command(), "ask %d", &ms); err != nil {
			fmt.Println("error", err)
			continue
		}
		until := time.Now().Add(time.Duration(ms) * time.Millisecond)
		for i := 0; i < threads; i++ {
			begin <- until
		}
		for i := 0; i < threads; i++ {
			<-end
		}
		fmt.Println("done")
	}
}
