// Manystacks waits in many different stacks: a goroutine goes every way through a tree of calls,
// and waits at its end until another one takes the number of the way.
//
// Protocol: it prints "ready PID". To the line "go N" it answers "done" once the first N ways were
// gone, to the line "loop N" as soon as it begins to go them again and again. To the line "burn N"
// it answers as to "go N", but at the end of each way it uses the processor for a while in place of
// waiting; to the line "label N" as to "burn N", but each way is gone under a label of its own, "way",
// and under one that all have, "work".
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

// What is done at the end of a way.
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
