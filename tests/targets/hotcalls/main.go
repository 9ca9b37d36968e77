// Hotcalls spends its time in calls that a compiler with a profile changes: one that it inlines
// only if it is hot, and one by way of an interface, which has always the same type.
//
// Protocol: it prints "ready PID" and then obeys the lines that it reads:
//
//	profile FILE   Go's own CPU profile is written to FILE from now on; prints "begun"
//	work N         works N times about a second; prints "done"
//	end            ends the profile; prints "ended"
//
// It ends when its input closes.
package main

import (
	"fmt"
	"os"
	"runtime/pprof"
	"time"

	"ebpfprof.test/harness"
)

type shape interface{ area(n int) int }

type square struct{ side int }

type circle struct{ radius int }

func (s square) area(n int) int {
	total := 0
	for i := 0; i < 3*n; i++ {
		total += i % s.side
	}
	return total
}

func (c circle) area(n int) int { return sum(n, 3*c.radius) }

var (
	shapes = []shape{square{2}, square{3}, square{4}}
	kept   int
	null   *os.File
)

// sum is too large to be inlined, unless it is hot.
func sum(n, factor int) int {
	total := 0
	for i := 0; i < n; i++ {
		if i%3 == 0 {
			total += i * factor
		} else if i%5 == 0 {
			total -= i / (factor + 1)
		} else if i%7 == 0 {
			total ^= i << 1
		} else {
			total += mixed(total, i)
		}
		if total > 1<<40 {
			total >>= 3
		}
		total += i&1 | total&2
	}
	return total
}

//go:noinline
func mixed(a, b int) int {
	for i := 0; i < 4; i++ {
		a = a*31 + b
	}
	return a
}

//go:noinline
func draw(n int) int {
	total := 0
	for _, each := range shapes {
		total += each.area(n)
	}
	return total
}

//go:noinline
func compute(n int) int { return sum(n, 5) + sum(n, 6) }

// store makes system calls, which take their time in the kernel.
//
//go:noinline
func store() {
	for i := 0; i < 20; i++ {
		_, err := null.Write(make([]byte, 64))
		harness.Check(err)
	}
}

func main() {
	var err error
	null, err = os.OpenFile("/dev/null", os.O_WRONLY, 0)
	harness.Check(err)
	harness.Ready()
	for harness.Next() {
		words := harness.Words()
		switch words[0] {
		case "profile":
			file, err := os.Create(words[1])
			harness.Check(err)
			harness.Check(pprof.StartCPUProfile(file))
			fmt.Println("begun")
		case "work":
			for end := time.Now().Add(time.Duration(harness.Number(words[1])) * time.Second); time.Now().Before(end); {
				kept += draw(2000) + compute(2000)
				store()
			}
			fmt.Println("done")
		case "end":
			pprof.StopCPUProfile()
			fmt.Println("ended")
		default:
			panic("hotcalls: no such command: " + words[0])
		}
	}
}
