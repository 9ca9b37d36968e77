// Package harness has what targets share: the hand-shake with the test that started them
// (tests/targets_run.py), goroutines that block on demand, and small helpers.
//
// Tests compare the stacks of targets. So main.main has the loop over commands: a harness with
// callbacks would add frames between main and the work. The package has no waits that a block or
// mutex profile shows, and no profiling: package ownprofile has that.
package harness

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

var input = bufio.NewScanner(os.Stdin)

// Ready prints "ready PID": a test can attach now.
func Ready() { fmt.Println("ready", os.Getpid()) }

// Next reads a command, which is a line of input. It returns false once the input is closed: then
// the target must end.
func Next() bool { return input.Scan() }

// Command returns the line that Next read.
func Command() string { return input.Text() }

// Words returns the words of that line.
func Words() []string { return strings.Fields(input.Text()) }

// AwaitEnd returns when the input is closed.
func AwaitEnd() {
	for input.Scan() {
	}
}

// Lines that EndWithInput has read, and lines that main has awaited.
var arrived, awaited atomic.Int64

// EndWithInput reads the input in a goroutine of its own, which ends the process when the input
// closes, whatever main does then. Main gets lines by AwaitLine, not by Next.
func EndWithInput() {
	go func() {
		for input.Scan() {
			arrived.Add(1)
		}
		os.Exit(0)
	}()
}

// AwaitLine returns when one more line has arrived. It polls.
func AwaitLine() {
	for number := awaited.Add(1); arrived.Load() < number; {
		time.Sleep(2 * time.Millisecond)
	}
}

// Say prints a line, as json.Marshal returns it.
func Say(line []byte, err error) {
	Check(err)
	fmt.Println(string(line))
}
