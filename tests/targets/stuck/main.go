// Stuck has goroutines that can never go on: deadlocks of locks, locks that were overwritten while
// goroutines waited for them, and whole programs that are asleep.
//
// Protocol: the first argument says what it does. It prints "ready PID" once all goroutines wait.
//
//	locks      obeys the lines that it reads, until its input closes:
//	             circles  makes goroutines wait for each other in circles; prints a line of JSON, the
//	                      ids of their members in their order, by the name of the circle
//	             given    makes a goroutine wait for a lock that its caller took, and that it gave back;
//	                      prints its id
//	             lost     overwrites locks that goroutines wait for; prints a line of JSON, the ids of
//	                      the goroutines and the addresses of the locks, by the kind of the lock
//	asleep     all goroutines wait for each other, but for that of os/signal, and nothing for a signal
//	cgo        the same without os/signal: Go does not see it in programs with cgo
//	foreign    as cgo, with a thread of C's own
//	timed      as asleep, and a timer is set that calls a function in an hour
//	listening  as asleep, and one accepts connections
//	signalled  as asleep, and main waits for a signal
//	idle       one accepts connections, main waits for a signal, workers wait for jobs: no goroutine is
//	           stuck
//
// In all modes but the first one it reads no input, and waits to be killed.
package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"ebpfprof.test/harness"
)

func main() {
	switch os.Args[1] {
	case "locks":
		obey()
	case "asleep":
		signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR1)
		transfer()
		rest()
	case "cgo":
		useC()
		transfer()
		rest()
	case "foreign":
		useC()
		startThread()
		transfer()
		rest()
	case "timed":
		signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR1)
		transfer()
		defer time.AfterFunc(time.Hour, func() {}).Stop()
		rest()
	case "listening":
		signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR1)
		transfer()
		listen()
		rest()
	case "signalled":
		transfer()
		awaitSignal()
	case "idle":
		work()
		listen()
		awaitSignal()
	default:
		panic("stuck: no such mode")
	}
}

func obey() {
	harness.Ready()
	for harness.Next() {
		switch harness.Command() {
		case "circles":
			harness.Say(json.Marshal(circles()))
		case "given":
			fmt.Println("given", giveBack())
		case "lost":
			harness.Say(json.Marshal(lose()))
		default:
			panic("stuck: no such command")
		}
	}
}

// begin starts a goroutine, and returns its id when that runs.
func begin(wait func()) int64 {
	var id int64
	go func() {
		atomic.StoreInt64(&id, harness.GoroutineID())
		wait()
	}()
	for atomic.LoadInt64(&id) == 0 {
		time.Sleep(50 * time.Microsecond)
	}
	return atomic.LoadInt64(&id)
}

// transfer makes two goroutines wait for each other.
func transfer() {
	var first, second account
	met := make(chan bool)
	pair := []int64{
		begin(func() { move(&first, &second, met) }),
		begin(func() { move(&second, &first, met) }),
	}
	met <- true
	met <- true
	for _, id := range pair {
		harness.AwaitState(id, "sync.Mutex.Lock", "semacquire")
	}
}

// rest waits for ever, for something that Go sees as a wait for another goroutine.
//
//go:noinline
func rest() {
	var all sync.WaitGroup
	all.Add(1)
	fmt.Println("ready", os.Getpid())
	all.Wait()
}

//go:noinline
func awaitSignal() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	fmt.Println("ready", os.Getpid())
	<-signals
}

func listen() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Check(err)
	harness.AwaitState(begin(func() { accept(listener) }), "IO wait")
}

//go:noinline
func accept(listener net.Listener) { listener.Accept() }

// work starts workers that wait for jobs.
func work() {
	jobs := make(chan int)
	for i := 0; i < 3; i++ {
		harness.AwaitBlocked(begin(func() {
			for range jobs {
			}
		}))
	}
}
