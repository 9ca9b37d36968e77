//go:build go1.25

package main

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// An operation takes the lock, calls sleeping, which returns when a thread sleeps for it, and
// releases it. That release, and no other, has a frame of the function of that name.
type operation struct {
	name string
	run  func(mu *mutex, sleeping func())
}

var operations = []operation{
	{"plainUnlock", plainUnlock},
	{"throughClosure", throughClosure},
	{"throughMethod", throughMethod},
	{"deferredUnlock", deferredUnlock},
	{"onSystemStack", onSystemStack},
	{"deepSystemStack", deepSystemStack},
	{"alreadyOnSystemStack", alreadyOnSystemStack},
	{"deep126", func(mu *mutex, sleeping func()) { deep(deep126, 126, mu, sleeping) }},
	{"deep127", func(mu *mutex, sleeping func()) { deep(deep127, 127, mu, sleeping) }},
	{"deep128", func(mu *mutex, sleeping func()) { deep(deep128, 128, mu, sleeping) }},
	{"deep140", func(mu *mutex, sleeping func()) { deep(deep140, 140, mu, sleeping) }},
}

const holdMicros = 300

// runOperations runs each operation so many times, with one thread that sleeps for the lock.
func runOperations(times int) {
	for _, each := range append(operations, cgoOperations...) {
		if times > 0 {
			planned[each.name] = times
		}
		mus := make([]mutex, times)
		for i := range mus {
			runOnce(each.run, &mus[i])
		}
	}
}

func runOnce(run func(*mutex, func()), mu *mutex) {
	var waiters crew
	waiters.start(1, func(int) {
		lock(mu)
		unlock(mu)
	})
	run(mu, func() {
		waiters.letGo(0)
		awaitSleeper(mu, 0)
		usleep(holdMicros)
	})
	waiters.wait()
}

// A crew is a number of threads, each of which works after letGo. A thread that holds a lock of the
// runtime can't schedule anything, so they start before, and poll.
type crew struct {
	running, turn atomic.Int32
	all           sync.WaitGroup
}

func (c *crew) start(size int, work func(i int)) {
	c.all.Add(size)
	for i := range size {
		go func() {
			defer c.all.Done()
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			c.running.Add(1)
			for c.turn.Load() <= int32(i) {
				usleep(10)
			}
			work(i)
		}()
	}
	for c.running.Load() < int32(size) {
		time.Sleep(10 * time.Microsecond)
	}
}

func (c *crew) letGo(i int) { c.turn.Store(int32(i) + 1) }

func (c *crew) wait() { c.all.Wait() }

// awaitSleeper waits until the last thread that fell asleep is not `before`, and returns it.
func awaitSleeper(mu *mutex, before uintptr) uintptr {
	for {
		head := atomic.LoadUintptr(&mu.key) &^ mutexFlags
		if head != before {
			return head
		}
		usleep(10)
	}
}

//go:noinline
func plainUnlock(mu *mutex, sleeping func()) {
	lock(mu)
	sleeping()
	unlock(mu)
}

func throughClosure(mu *mutex, sleeping func()) {
	release := func() { unlock(mu) }
	lock(mu)
	sleeping()
	release()
}

type guard struct{ mu *mutex }

func (g guard) Unlock() { unlock(g.mu) }

type unlocker interface{ Unlock() }

// The interface holds a pointer: the compiler makes a wrapper for it.
//
//go:noinline
func throughMethod(mu *mutex, sleeping func()) {
	var through unlocker = &guard{mu}
	lock(mu)
	sleeping()
	through.Unlock()
}

//go:noinline
func deferredUnlock(mu *mutex, sleeping func()) {
	lock(mu)
	defer unlock(mu)
	sleeping()
}

//go:noinline
func onSystemStack(mu *mutex, sleeping func()) {
	lock(mu)
	sleeping()
	systemstack(func() { unlock(mu) })
}

//go:noinline
func deepSystemStack(mu *mutex, sleeping func()) {
	lock(mu)
	sleeping()
	inTheMiddle(mu)
}

func inTheMiddle(mu *mutex) { outer(mu) }

//go:noinline
func outer(mu *mutex) {
	systemstack(func() { inner(mu, 3) })
}

//go:noinline
func inner(mu *mutex, levels int) int {
	if levels == 0 {
		unlock(mu)
		return 1
	}
	return inner(mu, levels-1) + 1
}

// alreadyOnSystemStack: without a switch of stacks, systemstack leaves no frame.
//
//go:noinline
func alreadyOnSystemStack(mu *mutex, sleeping func()) {
	lock(mu)
	sleeping()
	systemstack(func() {
		systemstack(func() { unlock(mu) })
	})
}

// The deep stacks are made of the function that carries the operation's name, because the
// profiler's depth limit may cut off their roots.
func deep(descend func(int, *mutex) int, levels int, mu *mutex, sleeping func()) {
	lock(mu)
	sleeping()
	descend(levels, mu)
}

//go:noinline
func deep126(levels int, mu *mutex) int {
	if levels == 1 {
		unlock(mu)
		return 1
	}
	return deep126(levels-1, mu) + 1
}

//go:noinline
func deep127(levels int, mu *mutex) int {
	if levels == 1 {
		unlock(mu)
		return 1
	}
	return deep127(levels-1, mu) + 1
}

//go:noinline
func deep128(levels int, mu *mutex) int {
	if levels == 1 {
		unlock(mu)
		return 1
	}
	return deep128(levels-1, mu) + 1
}

//go:noinline
func deep140(levels int, mu *mutex) int {
	if levels == 1 {
		unlock(mu)
		return 1
	}
	return deep140(levels-1, mu) + 1
}
