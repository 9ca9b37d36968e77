package harness

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// Check ends the process with status 1 if there is an error.
func Check(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[0], err)
		os.Exit(1)
	}
}

// Assert panics if a target has computed something wrong.
func Assert(correct bool) {
	if !correct {
		panic("a wrong result")
	}
}

// Number parses a number, or ends the process.
func Number(word string) int {
	value, err := strconv.Atoi(word)
	Check(err)
	return value
}

// Spin keeps a processor busy.
//
//go:noinline
func Spin(length time.Duration) {
	for start := time.Now(); time.Since(start) < length; {
	}
}

// CPUTime returns the CPU time of all threads so far, in user and kernel mode. It measures work
// even if other processes use the processors, too.
func CPUTime() time.Duration {
	var usage syscall.Rusage
	Check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// GrowStack calls so many levels deep, half a kilobyte each: the stack becomes larger than a
// parked goroutine needs, so that the collector shrinks it.
//
//go:noinline
func GrowStack(levels int) int {
	var room [64]int
	if levels == 0 {
		return len(room)
	}
	room[levels%64] = levels
	return GrowStack(levels-1) + room[levels%64] - levels
}
