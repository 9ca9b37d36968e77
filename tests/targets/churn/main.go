// Churn starts short processes of its own program all the time: `churn RATE MS` starts RATE a
// second. Each lives for MS milliseconds, while its goroutines wait for a lock.
//
// Protocol: it prints "ready PID" and starts. To the line "count" it answers "started N ended M".
// When its input closes it ends, after the last of its processes.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"ebpfprof.test/harness"
)

const workers = 4

var started, ended atomic.Int64

func main() {
	if os.Args[1] == "brief" {
		live(milliseconds(os.Args[2]))
		return
	}
	var processes sync.WaitGroup
	over := make(chan struct{})
	processes.Add(1)
	go func() {
		defer processes.Done()
		startAll(&processes, over)
	}()
	harness.Ready()
	for harness.Next() {
		if harness.Command() == "count" {
			fmt.Println("started", started.Load(), "ended", ended.Load())
		}
	}
	close(over)
	processes.Wait()
}

func startAll(processes *sync.WaitGroup, over <-chan struct{}) {
	tick := time.NewTicker(time.Second / time.Duration(number(os.Args[1])))
	for {
		select {
		case <-over:
			return
		case <-tick.C:
		}
		process := exec.Command("/proc/self/exe", "brief", os.Args[2])
		harness.Check(process.Start())
		started.Add(1)
		processes.Add(1)
		go func() {
			defer processes.Done()
			process.Wait()
			ended.Add(1)
		}()
	}
}

// live waits for a lock in several goroutines until the time is over.
func live(length time.Duration) {
	var lock sync.Mutex
	for i := 0; i < workers; i++ {
		go func() {
			for {
				lock.Lock()
				time.Sleep(time.Millisecond)
				lock.Unlock()
			}
		}()
	}
	time.Sleep(length)
}

func milliseconds(text string) time.Duration {
	return time.Duration(number(text)) * time.Millisecond
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	if err != nil || value <= 0 {
		fmt.Fprintln(os.Stderr, "usage: churn RATE MS")
		os.Exit(2)
	}
	return value
}
