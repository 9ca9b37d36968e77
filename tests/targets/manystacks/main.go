// Manystacks waits in many different stacks: a goroutine goes every way through a tree of calls,
// and waits at its end until another one receives the number of the way.
//
// Protocol: it prints "ready PID". At the line "go N" it goes the first N ways, and then answers
// "done"; at "loop N" it answers at once, and goes them again and again. "burn N" is like "go N",
// but at the end of each way it uses the processor for a while in place of waiting; "label N" is
// like "burn N", but it goes each way under a label of its own, "way", and under one of all ways,
// "work".
// It ends when its input closes.
package main

import (
	"context"
	"fmt"
	"runtime/pprof"
	"strconv"
	"time"

	"ebpfprof.test/harness"
)

const (
	turns     = 15
	burnSteps = 500_000 // some 0.7 ms
)

var ways = make(chan int)

// The function at the end of a way.
var end = wait

func main() {
	go func() {
		for range ways {
		}
	}()
	harness.Ready()
	for harness.Next() {
		var what string
		var count int
		if _, err := fmt.Sscan(harness.Command(), &what, &count); err != nil {
			fmt.Println("error", err)
			continue
		}
		end = wait
		if what == "burn" || what == "label" {
			end = burn
		}
		if what == "label" {
			for way := 0; way < count; way++ {
				of := pprof.Labels("way", strconv.Itoa(way), "work", "burn")
				pprof.Do(context.Background(), of, func(context.Context) { step(way, turns) })
			}
		} else if what == "loop" {
			go func() {
				for {
					goWays(count)
					time.Sleep(100 * time.Millisecond)
				}
			}()
		} else {
			goWays(count)
		}
		fmt.Println("done")
	}
}

func goWays(count int) {
	for way := 0; way < count; way++ {
		step(way, turns)
	}
}

func step(way, left int) int {
	if left == 0 {
		end(way)
		return 1
	}
	if way>>(left-1)&1 == 0 {
		return goLeft(way, left) + 1
	}
	return goRight(way, left) + 1
}

//go:noinline
func goLeft(way, left int) int { return step(way, left-1) + 1 }

//go:noinline
func goRight(way, left int) int { return step(way, left-1) + 1 }

func wait(way int) { ways <- way }

var burnt uint64

//go:noinline
func burn(way int) {
	for i := uint64(way); i < uint64(way)+burnSteps; i++ {
		burnt = burnt*6364136223846793005 + i
	}
}
