package main

import (
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
)

const until = 5 * time.Millisecond // until goroutines wait

type account struct {
	mu     sync.Mutex
	amount int
}

// transfer locks both accounts, in the order in which it gets them.
func transfer(from, to *account, met *sync.WaitGroup) {
	from.mu.Lock()
	defer from.mu.Unlock()
	met.Done()
	met.Wait()
	to.mu.Lock()
	defer to.mu.Unlock()
	from.amount--
	to.amount++
}

func deadlock() {
	var met sync.WaitGroup
	met.Add(2)
	mine, yours := &account{}, &account{}
	go transfer(mine, yours, &met)
	go transfer(yours, mine, &met)
	met.Wait()
	time.Sleep(until)
}

// reload waits for the new prices with the lock in its hands.
func (p *prices) reload(from <-chan map[string]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known = <-from
}

func (s *shop) hang() {
	go s.prices.reload(make(chan map[string]int))
	time.Sleep(until)
	for range 3 {
		go s.prices.find("tea")
	}
	time.Sleep(until)
}

func search(answers chan<- int) { answers <- 1 }

// leak asks for answers and doesn't wait for them.
func leak(times int) {
	for range times {
		go search(make(chan int))
	}
	time.Sleep(until)
}

func readPipe(pipe int) {
	var data [1]byte
	syscall.Read(pipe, data[:])
}

func readPipes(times int) {
	for range times {
		var pipe [2]int
		if err := syscall.Pipe(pipe[:]); err != nil {
			os.Exit(1)
		}
		go readPipe(pipe[0])
	}
	time.Sleep(until)
}

var kept []*order

//go:noinline
func newOrder(number int) *order { return &order{price: number} }

func allocate(count int) {
	for number := range count {
		kept = append(kept, newOrder(number))
		newOrder(number)
	}
	runtime.GC()
}
