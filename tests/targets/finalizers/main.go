// Finalizers runs a finalizer, and from Go 1.25 on a cleanup in a goroutine of its own, that wait for main.
//
// Protocol: it prints "ready PID" when they wait,
// and then obeys the lines that it reads:
//
//	own    prints which of its functions Go's own goroutine profile shows, as a line of JSON
//	spin   makes both compute for ever; prints "spins" when the finalizer does
//	end    makes both return; prints "ended"
//
// It ends when its input closes.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"sync/atomic"

	"ebpfprof.test/harness"
)

var (
	mayGoOn = make(chan bool)
	begun   atomic.Int64
	spins   atomic.Bool
	spun    atomic.Int64
)

type thing struct{ room [64]byte }

//go:noinline
func finalize(*thing) { hold() }

//go:noinline
func hold() {
	begun.Add(1)
	<-mayGoOn
	for spins.Load() {
		spun.Add(1)
	}
}

func main() {
	runtime.SetFinalizer(&thing{}, finalize)
	awaitBegun(1)
	addCleanup()
	harness.Ready()
	for harness.Next() {
		switch harness.Command() {
		case "own":
			var text bytes.Buffer
			harness.Check(pprof.Lookup("goroutine").WriteTo(&text, 1))
			found := []string{}
			for _, name := range []string{"main.finalize", "main.cleanUp"} {
				if bytes.Contains(text.Bytes(), []byte(name+"+")) {
					found = append(found, name)
				}
			}
			harness.Say(json.Marshal(found))
		case "spin":
			spins.Store(true)
			close(mayGoOn)
			harness.Poll(func() bool { return spun.Load() > 0 })
			fmt.Println("spins")
		case "end":
			close(mayGoOn)
			fmt.Println("ended")
		default:
			fmt.Fprintln(os.Stderr, "finalizers: no such command")
			os.Exit(1)
		}
	}
}

// awaitBegun collects garbage until so many functions wait.
func awaitBegun(count int64) {
	harness.Poll(func() bool { runtime.GC(); return begun.Load() >= count })
}
