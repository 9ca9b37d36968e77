// Steps blocks on demand.
//
// Protocol: it prints "ready PID", then answers each line with "done" once it has done it. "hand":
// a goroutine waits ten times for another one. "park": a goroutine begins to wait for a channel.
// "wake": wakes that goroutine. "nap": it sleeps, and runtime.ready wakes it, too. "burn":
// half a second of CPU time. It ends when its input closes.
package main

import (
	"fmt"
	"time"

	"ebpfprof.test/harness"
)

const hands = 10

var (
	wake   = make(chan bool)
	woken  = make(chan bool, 1)
	nap    = make(chan bool, 1)
	napped = make(chan bool, 1)
	sink   int
)

func main() {
	harness.Ready()
	for harness.Next() {
		switch harness.Command() {
		case "hand":
			hand()
		case "park":
			go park()
			time.Sleep(20 * time.Millisecond)
		case "wake":
			wake <- true
			poll(woken)
		case "nap":
			nap <- true
			poll(napped)
		case "burn":
			burn()
		}
		fmt.Println("done")
	}
}

func hand() {
	c, finished := make(chan int), make(chan bool, 1)
	go func() {
		for range c {
		}
		finished <- true
	}()
	for i := 0; i < hands; i++ {
		time.Sleep(5 * time.Millisecond) // until the receiver waits
		c <- i
	}
	// If the receiver is late, the sender waits in its place; but close() would not wait for it.
	time.Sleep(50 * time.Millisecond)
	close(c)
	poll(finished)
}

// park waits for a channel once; a block profile does not show its other waits.
func park() {
	<-wake
	woken <- true
	poll(nap)
	napped <- true
}

// poll waits for a channel without blocking on it.
func poll(c <-chan bool) {
	for {
		select {
		case <-c:
			return
		default:
			time.Sleep(time.Millisecond)
		}
	}
}

func burn() {
	for until := harness.CPUTime() + 500*time.Millisecond; harness.CPUTime() < until; {
		for i := 0; i < 100000; i++ {
			sink += i
		}
	}
}
