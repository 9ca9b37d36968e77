package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// changeProcs changes GOMAXPROCS up and down, and returns memory to the kernel. Both stop the
// world.
func changeProcs(round int) error {
	wanted := 1 + round%4
	runtime.GOMAXPROCS(wanted)
	if err := expect("GOMAXPROCS", runtime.GOMAXPROCS(0), wanted); err != nil {
		return err
	}
	if round%20 == 0 {
		debug.FreeOSMemory()
	}
	return nil
}

// askAnotherProcess starts this program again, also if its file is deleted.
func askAnotherProcess(round int) error {
	printed, err := exec.Command("/proc/self/exe", "answer", strconv.Itoa(round)).Output()
	if err != nil {
		return fmt.Errorf("the other process: %w", err)
	}
	got, err := strconv.Atoi(strings.TrimSpace(string(printed)))
	if err != nil {
		return err
	}
	return expect("what the other process answered", got, sumTo(round))
}

// answer runs in that other process: it sums up, and hands each number to another goroutine.
func answer(word string) {
	last, err := strconv.Atoi(word)
	if err != nil {
		panic(err)
	}
	numbers := make(chan int)
	go func() {
		for i := 1; i <= last; i++ {
			numbers <- i
		}
		close(numbers)
	}()
	sum := 0
	for i := range numbers {
		sum += i
	}
	fmt.Fprintln(os.Stdout, sum)
}

const (
	hoardedBytes = 1 << 20
	mostHoarded  = 2000
)

var (
	hoards atomic.Bool
	hoard  [][]byte
)

// takeMemory: after the line "hoard", it allocates and fills a megabyte a round.
func takeMemory(round int) error {
	if !hoards.Load() || len(hoard) == mostHoarded {
		return nil
	}
	block := make([]byte, hoardedBytes)
	for i := range block {
		block[i] = byte(round)
	}
	hoard = append(hoard, block)
	return expect("the last of the hoard", int(hoard[len(hoard)-1][hoardedBytes-1]), round%256)
}

const divers, levels = 4, 120

var (
	dive  sync.Once
	tasks [divers]chan int
	done  = make(chan int)
)

// waitBelowDeepStacks: goroutines with deep stacks wait for work at the end of them, again and
// again, and check their frames now and then.
func waitBelowDeepStacks(round int) error {
	dive.Do(func() {
		for i := range tasks {
			tasks[i] = make(chan int)
			go descend(levels, tasks[i])
		}
	})
	for i := range tasks {
		tasks[i] <- round
	}
	sum := 0
	for range tasks {
		sum += <-done
	}
	return expect("what the deep stacks hold", sum, divers*(sumTo(levels)+round))
}

// descend keeps a kilobyte in each frame. From the bottom it answers, and after some tasks it
// returns all the way up, checks its frames, and goes down again.
//
//go:noinline
func descend(level int, tasks chan int) int {
	var room [128]int
	for i := range room {
		room[i] = level + i
	}
	for {
		got := 0
		if level > 0 {
			got = descend(level-1, tasks)
		} else {
			got = answerBelow(tasks)
		}
		for i := range room {
			if room[i] != level+i {
				got = -1 << 40
			}
		}
		got += room[0]
		if level < levels {
			return got
		}
		done <- got
	}
}

// answerBelow stays at the bottom for seven tasks of eight; it hands up the eighth.
func answerBelow(tasks chan int) int {
	for task := range tasks {
		if task%8 == 0 {
			return task
		}
		done <- sumTo(levels) + task
	}
	return 0
}
