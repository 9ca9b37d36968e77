// Mainwaits has a main goroutine that waits for ever, as that of a program which leaves its work to
// others does, and one more that waits in the same way, which is a leak.
//
// Protocol: it prints "ready PID" once both wait, or are about to. It ends when its input closes.
package main

import (
	"os"

	"ebpfprof.test/harness"
)

//go:noinline
func forever() { <-make(chan int) }

func main() {
	go forever()
	go func() {
		harness.Ready()
		harness.AwaitEnd()
		os.Exit(0)
	}()
	forever()
}
