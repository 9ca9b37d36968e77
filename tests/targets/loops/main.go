// Loops has goroutines that wait nearly all of the time: some in loops that a timer or a signal
// wakes, others because of a problem.
//
// No function's name tells which they are. With -problems there are goroutines that wait for others,
// with -lock one that sleeps with a lock held. Protocol: it prints "ready PID" once all of them run. It
// ends when its input closes.
package main

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"ebpfprof.test/harness"
)

const (
	tick  = 50 * time.Millisecond
	pause = 20 * time.Millisecond
)

var (
	problems = flag.Bool("problems", false, "waits for others")
	lock     = flag.Bool("lock", false, "a lock that is held for ever")
)

func main() {
	flag.Parse()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	context, cancel := context.WithCancel(context.Background())
	defer cancel()
	go beat(time.NewTicker(tick).C)
	go lead(context, make(chan struct{}))
	go rearm(make(chan error))
	go nap()
	go caught(signals)

	if *problems {
		startProblems()
	}
	if *lock {
		var door sync.Mutex
		held := make(chan struct{})
		go grip(&door, held)
		<-held
		go knock(&door)
	}

	harness.Ready()
	for harness.Next() {
	}
}

func startProblems() {
	jobs := make(chan int)
	for i := 0; i < 3; i++ {
		go toil(jobs)
	}
	go supply(jobs)
	questions := make(chan question)
	go respond(questions)
	go ask(questions)
	bills := &bills{}
	go bills.settle(time.NewTicker(pause).C)
	go bills.owe()
	go stuck(make(chan int))
	go adrift(make(chan int))
}

// A loop of a ticker.
func beat(ticks <-chan time.Time) {
	for range ticks {
	}
}

// A loop of a ticker that others could end or wake, and don't.
func lead(context context.Context, changed <-chan struct{}) {
	ticker := time.NewTicker(2 * tick)
	for {
		select {
		case <-context.Done():
			return
		case <-changed:
		case <-ticker.C:
		}
	}
}

// A loop of timers that fire once.
func rearm(stop <-chan error) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(5 * tick):
		}
	}
}

func nap() {
	for {
		time.Sleep(tick)
	}
}

func caught(signals <-chan os.Signal) {
	for range signals {
	}
}

// Starved workers: what they wait for sleeps.
func toil(jobs <-chan int) {
	for range jobs {
	}
}

func supply(jobs chan<- int) {
	for i := 0; ; i++ {
		time.Sleep(pause)
		jobs <- i
	}
}

type question struct{ answer chan int }

// Waits for answers; the timer never fires.
func ask(questions chan<- question) {
	for {
		next := question{make(chan int)}
		questions <- next
		select {
		case <-next.answer:
		case <-time.After(10 * time.Second):
		}
	}
}

func respond(questions <-chan question) {
	for next := range questions {
		time.Sleep(pause)
		next.answer <- 1
	}
}

type bills struct {
	lock sync.Mutex
	open []chan int
}

// Others wait for what this loop of a ticker does.
func (b *bills) settle(ticks <-chan time.Time) {
	for range ticks {
		b.lock.Lock()
		for _, each := range b.open {
			each <- 1
		}
		b.open = nil
		b.lock.Unlock()
	}
}

func (b *bills) owe() {
	for {
		paid := make(chan int, 1)
		b.lock.Lock()
		b.open = append(b.open, paid)
		b.lock.Unlock()
		<-paid
	}
}

// Hangs: nothing ever comes.
func stuck(never <-chan int) { <-never }

// Hangs for as long as its timeout.
func adrift(never <-chan int) {
	select {
	case <-never:
	case <-time.After(time.Hour):
	}
}

// Sleeps with a lock held that another goroutine waits for.
func grip(door *sync.Mutex, held chan<- struct{}) {
	door.Lock()
	close(held)
	for i := 0; i < 1_000_000; i++ {
		time.Sleep(pause)
	}
	door.Unlock()
}

func knock(door *sync.Mutex) {
	door.Lock()
	door.Unlock()
}
