// Idle waits for work in all the ways of a service, and has two problems: requests that compete
// for a lock, and requests that hand their order to one slow goroutine.
//
// Protocol: it prints "ready PID". To each line of input it answers "done" once each of its
// goroutines has woken several times. It ends when its input closes.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"ebpfprof.test/harness"
)

const (
	rounds = 20
	crowd  = 4
)

// Woken goroutines report here; they never wait for that.
var woken = make(chan struct{}, 1024)

func main() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	go signalLoop(signals)
	go tickLoop(time.NewTicker(time.Millisecond).C)
	jobs := newPool(3)
	tasks := newQueue()
	go func() { tasks.dispatcher() }()
	address := serve()
	lines := make(chan string)
	go readInput(lines)
	harness.Ready()
	for range lines {
		for i := 0; i < rounds; i++ {
			<-time.After(time.Millisecond)
			wakeAll(jobs, tasks)
			get(address, "/fast")
			rush(address)
		}
		fmt.Println("done")
	}
}

func readInput(lines chan<- string) {
	for harness.Next() {
		lines <- harness.Command()
	}
	close(lines)
}

func signalLoop(signals <-chan os.Signal) {
	for range signals {
		woken <- struct{}{}
	}
}

func tickLoop(ticks <-chan time.Time) {
	for {
		select {
		case <-ticks:
		case <-context.Background().Done():
		}
	}
}

// newPool starts workers, which are closures.
func newPool(size int) chan<- func() {
	jobs := make(chan func())
	for i := 0; i < size; i++ {
		go func() {
			for job := range jobs {
				job()
			}
		}()
	}
	return jobs
}

type queue struct {
	changed *sync.Cond
	waiting int
}

func newQueue() *queue { return &queue{changed: sync.NewCond(new(sync.Mutex))} }

func (q *queue) dispatcher() {
	q.changed.L.Lock()
	for {
		for q.waiting == 0 {
			q.changed.Wait()
		}
		q.waiting--
		woken <- struct{}{}
	}
}

func (q *queue) add() {
	q.changed.L.Lock()
	defer q.changed.L.Unlock()
	q.waiting++
	q.changed.Signal()
}

// A context of a kind that package context doesn't know: it starts a goroutine to watch it.
type ownContext struct{ context.Context }

func (ownContext) Done() <-chan struct{} { return never }

var never = make(chan struct{})

func wakeAll(jobs chan<- func(), tasks *queue) {
	if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
		panic(err)
	}
	jobs <- func() { woken <- struct{}{} }
	tasks.add()
	for i := 0; i < 3; i++ {
		<-woken
	}
	_, cancel := context.WithCancel(ownContext{context.Background()})
	_, stop := signal.NotifyContext(context.Background(), syscall.SIGUSR2)
	time.Sleep(time.Millisecond)
	stop()
	cancel()
}

type shop struct {
	lock   sync.Mutex
	orders chan order
}

type order struct{ answer chan int }

func serve() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	shop := &shop{orders: make(chan order)}
	go shop.work()
	mux := http.NewServeMux()
	mux.HandleFunc("/fast", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "here you are")
	})
	mux.HandleFunc("/count", shop.count)
	mux.HandleFunc("/buy", shop.buy)
	go http.Serve(listener, mux)
	return "http://" + listener.Addr().String()
}

// count is the first problem: it sleeps with the lock held.
func (s *shop) count(http.ResponseWriter, *http.Request) {
	s.lock.Lock()
	defer s.lock.Unlock()
	time.Sleep(time.Millisecond)
}

// buy is the second one: it waits for a goroutine that has one order at a time.
func (s *shop) buy(http.ResponseWriter, *http.Request) {
	mine := order{make(chan int)}
	s.orders <- mine
	<-mine.answer
}

func (s *shop) work() {
	for next := range s.orders {
		time.Sleep(time.Millisecond)
		next.answer <- 1
	}
}

func rush(address string) {
	var all sync.WaitGroup
	for _, path := range []string{"/count", "/buy"} {
		for i := 0; i < crowd; i++ {
			all.Add(1)
			go func(path string) {
				defer all.Done()
				get(address, path)
			}(path)
		}
	}
	all.Wait()
}

var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * crowd}}

func get(address, path string) {
	response, err := client.Get(address + path)
	if err != nil {
		panic(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		panic(err)
	}
}
