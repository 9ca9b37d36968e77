package main

import (
	"os"
	"sync"
	"time"
	"unsafe"

	"ebpfprof.test/harness"
)

// Distances from the beginning of a lock to its semaphores (sync, Go 1.19 to 1.27).
const (
	mutexSema     = 4
	writerSema    = 8
	readerSema    = 12
	waitGroupSema = 8
)

var (
	mutex, deepMutex          sync.Mutex
	written, read             sync.RWMutex
	group                     sync.WaitGroup
	condLock                  sync.Mutex
	cond                      = sync.NewCond(&condLock)
	full                      = make(chan int, 1)
	empty, other, deep, turns = make(chan int), make(chan int), make(chan int), make(chan int)
	null                      chan int
)

func operations() []operation {
	mutex.Lock()
	deepMutex.Lock()
	written.Lock()
	read.RLock()
	group.Add(1)
	full <- 1
	all := []operation{
		{"lockMutex", 3, uintptr(unsafe.Pointer(&mutex)) + mutexSema, lockMutex},
		{"readLock", 4, uintptr(unsafe.Pointer(&written)) + readerSema, readLock},
		{"writeLock", 1, uintptr(unsafe.Pointer(&read)) + writerSema, writeLock},
		{"writeLockQueued", 2, uintptr(unsafe.Pointer(&written)) + mutexSema, writeLockQueued},
		{"wait", 5, uintptr(unsafe.Pointer(&group)) + waitGroupSema, wait},
		{"condWait", 6, 0, condWait},
		{"send", 7, 0, send},
		{"receive", 8, 0, receive},
		{"receiveOK", 9, 0, receiveOK},
		{"selectTwo", 10, 0, selectTwo},
		{"deepReceive", 2, 0, func() { deepReceive(60) }},
		{"deeperReceive", 2, 0, func() { deeperReceive(300) }},
		{"wideReceive", 3, 0, func() { wideReceive(40) }},
		{"turnLeft", 1, 0, turn},
		{"deepLock", 2, uintptr(unsafe.Pointer(&deepMutex)) + mutexSema, func() { deepLock(100) }},
	}
	return append(all, cgoOperations...)
}

// silent has waits that Go's block profile does not show.
func silent() []operation {
	reader, _, err := os.Pipe()
	harness.Check(err)
	return []operation{
		{"silentSleep", 2, 0, func() { time.Sleep(time.Hour) }},
		{"silentNil", 2, 0, func() { <-null }},
		{"silentSelect", 2, 0, func() { select {} }},
		{"silentRead", 1, 0, func() { reader.Read(make([]byte, 1)) }},
	}
}

//go:noinline
func lockMutex() { mutex.Lock() }

//go:noinline
func readLock() { written.RLock() }

//go:noinline
func writeLock() { read.Lock() }

//go:noinline
func writeLockQueued() { written.Lock() }

//go:noinline
func wait() { group.Wait() }

//go:noinline
func condWait() {
	condLock.Lock()
	cond.Wait()
}

//go:noinline
func send() { full <- 2 }

//go:noinline
func receive() { <-empty }

//go:noinline
func receiveOK() {
	for range empty {
	}
}

//go:noinline
func selectTwo() {
	select {
	case <-empty:
	case <-other:
	}
}

//go:noinline
func deepReceive(levels int) int {
	if levels <= 1 {
		return <-deep
	}
	return deepReceive(levels-1) + 1
}

// deeperReceive: more frames than a recording keeps of any stack.
//
//go:noinline
func deeperReceive(levels int) int {
	if levels <= 1 {
		return <-deep
	}
	return deeperReceive(levels-1) + 1
}

// wideReceive: its frames are far apart.
//
//go:noinline
func wideReceive(levels int) int {
	var room [500]int
	room[levels] = levels
	if levels <= 1 {
		return <-deep
	}
	return wideReceive(levels-1) + room[levels] + room[levels/2]
}

//go:noinline
func deepLock(levels int) int {
	if levels <= 1 {
		deepMutex.Lock()
		return 1
	}
	return deepLock(levels-1) + 1
}

// turn parks a bit deeper every other time, with frames as far apart.
func turn() {
	for {
		turnLeft(12)
		turnRight(13)
	}
}

//go:noinline
func turnLeft(levels int) int {
	var room [500]int
	room[levels] = levels
	if levels <= 1 {
		return <-turns
	}
	return turnLeft(levels-1) + room[levels] + room[levels/2]
}

//go:noinline
func turnRight(levels int) int {
	var room [500]int
	room[levels] = levels
	if levels <= 1 {
		return <-turns
	}
	return turnRight(levels-1) + room[levels] + room[levels/2]
}
