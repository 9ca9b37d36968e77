package main

import (
	"runtime"
	"sync"
	"time"

	"ebpfprof.test/harness"
)

var stackOperations = []operation{
	{"deep20", 7, deep(deep20, 20)},
	{"deep40", 5, deep(deep40, 40)},
	{"deep140", 3, deep(deep140, 140)},
	{"deepInlined", 2, deep(deepInlined, 60)},
	{"inlined", 13, inlined},
	{"inlinedLock", 17, inlinedLock},
	{"closures", 33, closures},
	{"bigFrame", 26, bigFrame},
	{"grownStack", 38, grownStack},
	{"movedStack", 9, movedStack},
	{"panicking", 21, panicking},
	{"recovered", 27, recovered},
	{"lockedThread", 35, lockedThread},
	{"timerFunction", 39, timerFunction},
}

// The deep stacks are made of the function that carries the operation's name, because the
// profiler's depth limit may cut off their roots.

//go:noinline
func deep20(levels int, c chan int) int {
	if levels <= 1 {
		return <-c
	}
	return deep20(levels-1, c) + 1
}

//go:noinline
func deep40(levels int, c chan int) int {
	if levels <= 1 {
		return <-c
	}
	return deep40(levels-1, c) + 1
}

//go:noinline
func deep140(levels int, c chan int) int {
	if levels <= 1 {
		return <-c
	}
	return deep140(levels-1, c) + 1
}

func deep(descend func(int, chan int) int, levels int) func(int) {
	return func(n int) {
		c := make(chan int)
		harness.Rounds(n, nil, func() { descend(levels, c) }, func() { c <- 1 })
	}
}

// deepInlined: every physical frame stands for three logical ones.
//
//go:noinline
func deepInlined(levels int, c chan int) int {
	if levels <= 1 {
		return inlineOuter(c)
	}
	return hop(levels, c) + 1
}

func hop(levels int, c chan int) int      { return hopAgain(levels, c) + 1 }
func hopAgain(levels int, c chan int) int { return deepInlined(levels-1, c) + 1 }

func inlineOuter(c chan int) int  { return inlineMiddle(c) + 1 }
func inlineMiddle(c chan int) int { return inlineInner(c) + 1 }
func inlineInner(c chan int) int  { return <-c }

func inlined(n int) {
	c := make(chan int)
	harness.Rounds(n, nil, func() { inlineOuter(c) }, func() { c <- 1 })
}

func lockOuter(mu *sync.Mutex) { lockInner(mu) }
func lockInner(mu *sync.Mutex) { mu.Lock() }

func inlinedLock(n int) {
	var mu sync.Mutex
	block := func() {
		lockOuter(&mu)
		mu.Unlock()
	}
	harness.Rounds(n, mu.Lock, block, mu.Unlock)
}

func closures(n int) {
	c := make(chan int)
	block := func() {
		inner := func() {
			innermost := func() { <-c }
			call(innermost)
		}
		call(inner)
	}
	harness.Rounds(n, nil, block, func() { c <- 1 })
}

//go:noinline
func receiveOnBigFrame(c chan int) int {
	var room [3000]int
	for i := range room {
		room[i] = i
	}
	got := <-c
	return got + room[got]
}

func bigFrame(n int) {
	c := make(chan int)
	harness.Rounds(n, nil, func() { receiveOnBigFrame(c) }, func() { c <- 1 })
}

//go:noinline
func receiveThenGrow(c chan int, levels int) int {
	return <-c + harness.GrowStack(levels)
}

// grownStack: new goroutines, whose stack grows, and so moves, before the wait.
func grownStack(n int) {
	c := make(chan int)
	round := 0
	start := func(p *harness.Partner) {
		round++
		levels := round * 7
		go func() {
			p.Arrive()
			harness.GrowStack(levels)
			receiveThenGrow(c, 2*levels)
			p.Leave()
		}()
	}
	harness.Fresh(n, start, func() { c <- 1 })
}

//go:noinline
func descend(levels int, c chan int) int {
	if levels <= 1 {
		return <-c
	}
	return descend(levels-1, c) + 1
}

// movedStack: the garbage collector shrinks, and so moves, the stack of the parked goroutine.
func movedStack(n int) {
	c := make(chan int)
	block := func() {
		harness.GrowStack(2000)
		descend(10, c)
	}
	wake := func() {
		runtime.GC()
		runtime.GC()
		c <- 1
	}
	harness.Rounds(n, nil, block, wake)
}

// panicking: the wait is in a deferred function that a panic runs.
func panicking(n int) {
	c := make(chan int)
	block := func() {
		defer func() { recover() }()
		defer func() { <-c }()
		panic("on purpose")
	}
	harness.Rounds(n, nil, block, func() { c <- 1 })
}

// recovered: the wait comes after the panic was recovered.
func recovered(n int) {
	c := make(chan int)
	block := func() {
		func() {
			defer func() { recover() }()
			var nothing *account
			nothing.balance++
		}()
		<-c
	}
	harness.Rounds(n, nil, block, func() { c <- 1 })
}

func lockedThread(n int) {
	c := make(chan int)
	block := func() {
		runtime.LockOSThread()
		<-c
		runtime.UnlockOSThread()
	}
	harness.Rounds(n, nil, block, func() { c <- 1 })
}

// timerFunction: the runtime's timer code starts the goroutine.
func timerFunction(n int) {
	c := make(chan int)
	start := func(p *harness.Partner) {
		time.AfterFunc(time.Microsecond, func() {
			p.Arrive()
			<-c
			p.Leave()
		})
	}
	harness.Fresh(n, start, func() { c <- 1 })
}
