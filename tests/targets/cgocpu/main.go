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
	"bufio"
	"context"
	"fmt"
	"os"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"time"

	"cgocpu/framed"
	"cgocpu/frameless"
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
	fmt.Println("ready", os.Getpid())
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		words := strings.Fields(input.Text())
		work := works[words[0]]
		ms, err := strconv.Atoi(words[1])
		if work == nil || err != nil {
			panic("cgocpu: no such command")
		}
		pprof.Do(context.Background(), pprof.Labels("work", words[0]), func(context.Context) {
			perform(work, time.Duration(ms)*time.Millisecond)
		})
		fmt.Println("done")
	}
}

//go:noinline
func perform(work func(), duration time.Duration) {
	for began := cpuTime(); cpuTime()-began < duration; {
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

func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
