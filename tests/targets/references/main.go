// References keeps objects alive in all the ways that a Go program has, one of each.
//
// Commands, a line each; each is answered by one line, "done":
//
//	cut NAME   drops the reference with that name
//	gc         collects garbage, twice, as sync.Pool needs
//	gc once    collects garbage once: what sync.Pool has stays for one more collection
//	pool       puts an object into the sync.Pool
//	dump FILE  writes Go's own heap dump
//	grow N     adds N sessions
//	leak       starts goroutines that can never continue, and others that can
//	profile    has the runtime find those that can't, where it can (Go 1.27)
package main

import (
	"container/list"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"sync"
	"time"
	"unsafe"

	"ebpfprof.test/harness"
)

type node struct {
	next *node
	name [40]byte
}

type session struct {
	id   int
	data []byte
	tags []string
}

type captured struct {
	words [30]*int
}

type job struct {
	payload [100]byte
	after   *job
}

type shape interface{ area() int }

type circle struct {
	radius *int
	pad    [5]int
}

func (c *circle) area() int { return *c.radius }

type secret struct {
	next *secret
	pad  [20]int
}

type held struct {
	left, right *held
	pad         [14]int
}

type pooled struct {
	buffer *[3000]byte
	words  [80]*int
}

type finalized struct {
	keeps *kept
	pad   [12]int
}

type kept struct {
	pad   [25]int
	plain *int
}

type timed struct {
	pad  [33]int
	next *timed
}

type large struct {
	first [200]*circle
}

var (
	nodes    *node
	queue    = list.New()
	sessions = map[string]*session{}
	small    = map[int]*session{}
	callback func() int
	jobs     = make(chan *job, 100)
	pool     sync.Pool
	drawn    shape
	raw      unsafe.Pointer
	larges   []*large
	release  = make(chan bool)
	timer    *time.Timer
)

func number(value int) *int { return &value }

func chain(count int) *node {
	var first *node
	for i := 0; i < count; i++ {
		first = &node{next: first}
	}
	return first
}

//go:noinline
func capture() func() int {
	value := &captured{}
	for i := range value.words {
		value.words[i] = number(i)
	}
	return func() int { return *value.words[3] }
}

//go:noinline
func tree(depth int) *held {
	if depth == 0 {
		return nil
	}
	return &held{left: tree(depth - 1), right: tree(depth - 1)}
}

//go:noinline
func hold(ready chan bool) {
	top := tree(10)
	ready <- true
	<-release
	runtime.KeepAlive(top)
}

//go:noinline
func fill() {
	nodes = chain(20000)
	for i := 0; i < 3000; i++ {
		queue.PushBack(&circle{radius: number(i)})
	}
	addSessions(5000)
	for i := 0; i < 5; i++ {
		small[i] = &session{id: i}
	}
	callback = capture()
	for i := 0; i < 50; i++ {
		jobs <- &job{after: &job{}}
	}
	drawn = &circle{radius: number(7)}
	raw = unsafe.Pointer(&secret{next: &secret{}})
	for i := 0; i < 20; i++ {
		one := &large{}
		for j := range one.first {
			one.first[j] = &circle{radius: number(j)}
		}
		larges = append(larges, one)
	}
	object := &finalized{keeps: &kept{plain: number(1)}}
	runtime.SetFinalizer(object, func(*finalized) {})
	finalizable = object
	chainOfTimer := &timed{next: &timed{}}
	timer = time.AfterFunc(time.Hour, func() { runtime.KeepAlive(chainOfTimer) })
	fillNew()
	fillArena()
}

var finalizable *finalized

func addSessions(count int) {
	for i := 0; i < count; i++ {
		name := fmt.Sprintf("session-%d", len(sessions))
		sessions[name] = &session{id: i, data: make([]byte, 1000), tags: []string{name}}
	}
}

func cut(name string) {
	switch name {
	case "nodes":
		nodes = nil
	case "queue":
		queue = nil
	case "sessions":
		sessions = nil
	case "small":
		small = nil
	case "callback":
		callback = nil
	case "jobs":
		jobs = nil
	case "drawn":
		drawn = nil
	case "raw":
		raw = nil
	case "larges":
		larges = nil
	case "hold":
		release <- true
	case "finalizable":
		finalizable = nil
	case "timer":
		timer.Stop()
		timer = nil
	default:
		cutNew(name)
		cutArena(name)
	}
}

//go:noinline
func fillPool() { pool.Put(&pooled{buffer: new([3000]byte)}) }

func dump(path string) {
	file, err := os.Create(path)
	harness.Check(err)
	debug.WriteHeapDump(file.Fd())
	harness.Check(file.Close())
}

var signals = make(chan bool)

//go:noinline
func leakedSend(answer chan int, payload *[4000]byte) {
	answer <- len(payload)
	runtime.KeepAlive(payload)
}

// leakedOuter is the only one that has the channel of leakedInner.
//
//go:noinline
func leakedOuter(mine, other chan int) {
	go leakedInner(other)
	<-mine
	other <- 1
}

//go:noinline
func leakedInner(mine chan int) { <-mine }

//go:noinline
func leakedSelect(first, second chan int) {
	select {
	case <-first:
	case second <- 1:
	}
}

//go:noinline
func leakedNil() {
	var never chan int
	<-never
}

//go:noinline
func leakedGroup(group *sync.WaitGroup) { group.Wait() }

//go:noinline
func leakedLock(mu *sync.Mutex) { mu.Lock() }

//go:noinline
func fineGlobal() { <-signals }

//go:noinline
func fineTimer() { <-time.After(time.Hour) }

//go:noinline
func fineSleep(mine chan int) {
	go fineBySleeper(mine)
	time.Sleep(time.Hour)
	mine <- 1
}

//go:noinline
func fineBySleeper(mine chan int) { <-mine }

//go:noinline
func start(index int) {
	go leakedSend(make(chan int), new([4000]byte))
	go leakedOuter(make(chan int), make(chan int))
	go leakedSelect(make(chan int), make(chan int))
	go leakedNil()
	group := new(sync.WaitGroup)
	group.Add(1)
	go leakedGroup(group)
	mu := new(sync.Mutex)
	mu.Lock()
	go leakedLock(mu)
	go fineGlobal()
	go fineTimer()
	go fineSleep(make(chan int))
}

// leak starts them in a goroutine that ends: what a stack had before would still refer to channels.
func leak() {
	ready := make(chan bool)
	go func() {
		for index := 0; index < 3; index++ {
			start(index)
		}
		time.Sleep(200 * time.Millisecond)
		ready <- true
	}()
	<-ready
}

func main() {
	ready := make(chan bool)
	go hold(ready)
	<-ready
	fill()
	harness.Ready()
	for harness.Next() {
		words := harness.Words()
		switch words[0] {
		case "cut":
			cut(words[1])
		case "grow":
			addSessions(harness.Number(words[1]))
		case "leak":
			leak()
		case "profile":
			if leaks := pprof.Lookup("goroutineleak"); leaks != nil {
				harness.Check(leaks.WriteTo(io.Discard, 0))
			}
		case "pool":
			fillPool()
		case "dump":
			dump(words[1])
		case "gc":
			runtime.GC()
			if len(words) == 1 {
				runtime.GC()
			}
		}
		fmt.Println("done")
	}
}
