package main

import (
	"bytes"
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"
)

// A partner is a goroutine that blocks once a round. The goroutine that drives it never blocks
// itself: it polls until the partner is parked, lets some time pass and wakes it.
type partner struct {
	id           atomic.Int64
	begun, ended atomic.Int64
	stopped      atomic.Bool
}

func newPartner(block func()) *partner {
	p := &partner{}
	go p.loop(block)
	return p
}

func (p *partner) loop(block func()) {
	p.id.Store(goroutineID())
	for round := int64(1); ; round++ {
		poll(func() bool { return p.begun.Load() >= round || p.stopped.Load() })
		if p.stopped.Load() {
			return
		}
		block()
		p.ended.Store(round)
	}
}

func (p *partner) begin() { p.begun.Add(1) }

func (p *partner) awaitEnd() {
	poll(func() bool { return p.ended.Load() == p.begun.Load() })
}

func (p *partner) awaitParked() {
	poll(func() bool { return p.id.Load() != 0 })
	awaitState(p.id.Load(), blockedStates)
}

// rounds lets one partner block n times. prepare may be nil.
func rounds(n int, prepare, block, wake func()) {
	p := newPartner(block)
	for i := 0; i < n; i++ {
		if prepare != nil {
			prepare()
		}
		p.begin()
		p.awaitParked()
		pause(i)
		wake()
		p.awaitEnd()
	}
	p.stopped.Store(true)
}

// crowd lets several partners block in every round, all at once: n events in all.
func crowd(n, size int, prepare, block, wake func()) {
	if n%size != 0 {
		panic("a crowd's events are not a multiple of its size")
	}
	var partners []*partner
	for i := 0; i < size; i++ {
		partners = append(partners, newPartner(block))
	}
	for i := 0; i < n/size; i++ {
		if prepare != nil {
			prepare()
		}
		for _, p := range partners {
			p.begin()
			p.awaitParked()
		}
		pause(i)
		wake()
		for _, p := range partners {
			p.awaitEnd()
		}
	}
	for _, p := range partners {
		p.stopped.Store(true)
	}
}

// fresh runs `start` n times; it must start a goroutine that calls arrive, blocks and calls
// leave on the partner it is given.
func fresh(n int, start func(p *partner), wake func()) {
	for i := 0; i < n; i++ {
		p := &partner{}
		p.begin()
		start(p)
		p.awaitParked()
		pause(i)
		wake()
		p.awaitEnd()
	}
}

func (p *partner) arrive() { p.id.Store(goroutineID()) }
func (p *partner) leave()  { p.ended.Add(1) }

// blockedStates are the states in which a goroutine waits for what the block profiler measures,
// as tracebacks of Go 1.19 to 1.27 name them.
var blockedStates = []string{
	"chan receive", "chan send", "select", "semacquire", "sync.Mutex.Lock",
	"sync.RWMutex.RLock", "sync.RWMutex.Lock", "sync.Cond.Wait", "sync.WaitGroup.Wait",
}

func awaitState(id int64, states []string) {
	poll(func() bool {
		now := stateOf(id)
		for _, state := range states {
			if now == state {
				return true
			}
		}
		return false
	})
}

var traceback = make([]byte, 1<<20)

// stateOf reads a goroutine's state from the traceback of all goroutines; only main calls it.
func stateOf(id int64) string {
	text := traceback[:runtime.Stack(traceback, true)]
	for {
		start := bytes.Index(text, []byte(fmt.Sprintf("goroutine %d [", id)))
		if start < 0 {
			return ""
		}
		if start == 0 || text[start-1] == '\n' {
			text = text[start+bytes.IndexByte(text[start:], '[')+1:]
			break
		}
		text = text[start+1:]
	}
	state := text[:bytes.IndexByte(text, ']')]
	if comma := bytes.IndexByte(state, ','); comma >= 0 {
		state = state[:comma]
	}
	return string(bytes.TrimSuffix(state, []byte(" (scan)")))
}

func goroutineID() int64 {
	buffer := make([]byte, 64)
	words := bytes.Fields(buffer[:runtime.Stack(buffer, false)])
	id, err := strconv.ParseInt(string(words[1]), 10, 64)
	check(err)
	return id
}

// poll waits without blocking in a way that a block profile shows.
func poll(done func() bool) {
	for i := 0; !done(); i++ {
		if i < 50 {
			runtime.Gosched()
		} else {
			time.Sleep(50 * time.Microsecond)
		}
	}
}

// pause spins for 60 to 200 microseconds, so that the waits of an operation differ.
func pause(round int) {
	spin(time.Duration(60+20*(round%8)) * time.Microsecond)
}

func spin(length time.Duration) {
	for start := time.Now(); time.Since(start) < length; {
	}
}
