package main

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

type cache struct {
	name   string
	mu     sync.Mutex
	values []int
}

type table struct {
	rows int
	rw   sync.RWMutex
}

type waiter interface{ wait(number int) }

type place struct{ where, depth int }

var (
	global   sync.Mutex
	never    = make(chan int)
	full     = make(chan string, 2)
	shared   = newCache("shared")
	first    = &cache{name: "first"}
	second   = &cache{name: "second"}
	read     = &table{}
	written  = &table{}
	ready    = sync.NewCond(&sync.Mutex{})
	all, met sync.WaitGroup
	once     sync.Once
	timers   []*time.Timer
	ids      sync.Mutex
	parked   = map[string]int{}
	order    []string
	finished int64
)

// newCache returns one on the heap.
//
//go:noinline
func newCache(name string) *cache { return &cache{name: name} }

// spawn starts a goroutine that waits for good.
func spawn(name string, block func()) {
	var begun int32
	go func() {
		note(name)
		atomic.StoreInt32(&begun, 1)
		block()
	}()
	for atomic.LoadInt32(&begun) == 0 {
		runtime.Gosched()
	}
}

// note remembers the id of the goroutine that calls it.
func note(name string) {
	var head [64]byte
	words := bytes.Fields(head[:runtime.Stack(head[:], false)])
	id, _ := strconv.Atoi(string(words[1]))
	ids.Lock()
	parked[name] = id
	order = append(order, name)
	ids.Unlock()
}

//go:noinline
func receive() { <-never }

//go:noinline
func (c *cache) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	receive()
}

//go:noinline
func (c *cache) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.values)
}

//go:noinline
func (t *table) write() {
	t.rw.Lock()
	defer t.rw.Unlock()
	receive()
}

//go:noinline
func (t *table) read() {
	t.rw.RLock()
	defer t.rw.RUnlock()
	receive()
}

//go:noinline
func both(one, other *cache) {
	one.mu.Lock()
	met.Done()
	met.Wait()
	other.mu.Lock()
	other.mu.Unlock()
	one.mu.Unlock()
}

func (p *place) wait(number int) { p.descend(number, p.where) }

//go:noinline
func (p *place) descend(left, sum int) int {
	if left == 0 {
		receive()
	}
	return p.descend(left-1, sum+left) + p.depth
}

func small(ch chan int) int { return <-ch + 1 } // is inlined

//go:noinline
func arguments(number int8, word string, list []int, pair place, yes bool, real float64) {
	receive()
	println(number, word, list, pair.where, yes, real)
}

// startWaits starts them in an order in which each can wait for the ones before it.
func startWaits() {
	full <- "a"
	full <- "b"
	global.Lock()
	all.Add(3)

	spawn("chan receive", receive)
	spawn("chan send", func() { full <- "c" })
	spawn("nil channel", func() { var none chan int; <-none })
	spawn("select", func() {
		select {
		case <-never:
		case full <- "d":
		}
	})
	spawn("select forever", func() { select {} })
	spawn("generic", func() { generic(make(chan place)) })
	spawn("inlined", func() { println(small(never)) })
	spawn("method", func() { waiter(&place{1, 2}).wait(3) })
	spawn("deep", func() { (&place{}).descend(400, 0) })
	spawn("arguments", func() { arguments(-1, "word", []int{1, 2}, place{3, 4}, true, 0.5) })

	spawn("holder", func() { shared.hold() })
	awaitState("holder", "chan receive")
	spawn("mutex", func() { shared.size() })
	spawn("mutex too", func() { shared.size() })
	spawn("global mutex", func() { global.Lock() })
	spawn("writer", written.write)
	awaitState("writer", "chan receive")
	spawn("waits to read", written.read)
	spawn("reader", read.read)
	awaitState("reader", "chan receive")
	spawn("waits to write", read.write)
	awaitState("waits to write", "sync.RWMutex.Lock", "semacquire")
	spawn("behind a writer", read.read)
	met.Add(2)
	spawn("deadlock", func() { both(first, second) })
	spawn("deadlock too", func() { both(second, first) })

	spawn("cond", func() { ready.L.Lock(); ready.Wait() })
	spawn("wait group", all.Wait)
	spawn("once", func() { once.Do(receive) })
	awaitState("once", "chan receive")
	spawn("behind once", func() { once.Do(receive) })
	spawn("sleep", func() { time.Sleep(time.Hour) })
	spawn("timer", func() { <-time.After(2 * time.Hour) })
	ticker := time.NewTicker(3 * time.Hour)
	spawn("ticker", func() { <-ticker.C })
	for hours := 4; hours < 7; hours++ {
		timers = append(timers, time.AfterFunc(time.Duration(hours)*time.Hour, func() { atomic.AddInt64(&finished, 1) }))
	}

	reader, writer, _ := os.Pipe()
	spawn("IO wait", func() { reader.Read(make([]byte, 1)) })
	timers = append(timers, time.AfterFunc(7*time.Hour, func() { writer.Close() }))
	var raw [2]int
	syscall.Pipe(raw[:])
	spawn("system call", func() { syscall.Read(raw[0], make([]byte, 1)) })
	spawn("locked to its thread", func() { runtime.LockOSThread(); receive() })

	spawn("labelled", func() {
		setLabels("request", "get /orders", "user", "Zoë")
		spawn("child", receive)
		receive()
	})
	awaitState("labelled", "chan receive")

	say("lock shared", int(uintptr(unsafe.Pointer(&shared.mu))))
	say("lock global", int(uintptr(unsafe.Pointer(&global))))
	say("lock written", int(uintptr(unsafe.Pointer(&written.rw))))
	say("lock read", int(uintptr(unsafe.Pointer(&read.rw))))
	say("lock first", int(uintptr(unsafe.Pointer(&first.mu))))
	say("lock second", int(uintptr(unsafe.Pointer(&second.mu))))
	say("channel never", *(*int)(unsafe.Pointer(&never)), len(never), cap(never))
	say("channel full", *(*int)(unsafe.Pointer(&full)), len(full), cap(full))
}

// awaitWaits returns once all that were started wait, and says which they are.
func awaitWaits() {
	for _, name := range order {
		awaitState(name)
		say("goroutine "+name, parked[name])
	}
}

// awaitState polls until a goroutine is in one of the states, or in any that is a wait.
func awaitState(name string, states ...string) {
	ids.Lock()
	id := parked[name]
	ids.Unlock()
	for {
		state := stateOf(id)
		if len(states) == 0 && state != "" && state != "running" && state != "runnable" {
			return
		}
		for _, each := range states {
			if state == each {
				return
			}
		}
		time.Sleep(50 * time.Microsecond)
	}
}

// stateOf returns the state of a goroutine in Go's traceback.
func stateOf(id int) string {
	text := stacks[:runtime.Stack(stacks, true)]
	at := bytes.Index(text, []byte("\ngoroutine "+strconv.Itoa(id)+" "))
	if at < 0 {
		return ""
	}
	text = text[at:]
	text = text[bytes.IndexByte(text, '[')+1:]
	text = text[:bytes.IndexAny(text, ",]")]
	return string(bytes.TrimSuffix(text, []byte(" (scan)")))
}
