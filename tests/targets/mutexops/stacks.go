package main

import (
	"sync"

	"ebpfprof.test/harness"
)

var stackOperations = []operation{
	{"deep20", 7, deep(deep20, 20)},
	{"deep40", 5, deep(deep40, 40)},
	{"deep140", 3, deep(deep140, 140)},
	{"deepInlined", 2, deep(deepInlined, 60)},
	{"bigFrame", 26, bigFrame},
	{"grownStack", 14, grownStack},
}

// The deep stacks are made of the function that carries the operation's name, because the
// profiler's depth limit may cut off their roots.

//go:noinline
func deep20(levels int, mu *sync.Mutex) int {
	if levels <= 1 {
		mu.Unlock()
		return 1
	}
	return deep20(levels-1, mu) + 1
}

//go:noinline
func deep40(levels int, mu *sync.Mutex) int {
	if levels <= 1 {
		mu.Unlock()
		return 1
	}
	return deep40(levels-1, mu) + 1
}

//go:noinline
func deep140(levels int, mu *sync.Mutex) int {
	if levels <= 1 {
		mu.Unlock()
		return 1
	}
	return deep140(levels-1, mu) + 1
}

func deep(descend func(int, *sync.Mutex) int, levels int) func(int) {
	return func(n int) {
		var mu sync.Mutex
		harness.Rounds(n, mu.Lock, passer(&mu), func() { descend(levels, &mu) })
	}
}

// deepInlined: every physical frame stands for three logical ones.
//
//go:noinline
func deepInlined(levels int, mu *sync.Mutex) int {
	if levels <= 1 {
		unlockOuter(mu)
		return 1
	}
	return hop(levels, mu) + 1
}

func hop(levels int, mu *sync.Mutex) int      { return hopAgain(levels, mu) + 1 }
func hopAgain(levels int, mu *sync.Mutex) int { return deepInlined(levels-1, mu) + 1 }

//go:noinline
func unlockOnBigFrame(mu *sync.Mutex) int {
	var room [3000]int
	for i := range room {
		room[i] = i
	}
	mu.Unlock()
	return room[len(room)-1]
}

func bigFrame(n int) {
	var mu sync.Mutex
	harness.Rounds(n, mu.Lock, passer(&mu), func() { unlockOnBigFrame(&mu) })
}

//go:noinline
func unlockThenGrow(mu *sync.Mutex, levels int) int {
	mu.Unlock()
	return harness.GrowStack(levels)
}

// grownStack: goroutines whose stack moves before the release, and again after it.
func grownStack(n int) {
	var mu sync.Mutex
	levels := 0
	wake := func() {
		levels += 17
		go func(levels int) {
			harness.GrowStack(levels)
			unlockThenGrow(&mu, 2*levels)
		}(levels)
	}
	harness.Rounds(n, mu.Lock, passer(&mu), wake)
}
