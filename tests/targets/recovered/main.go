// Recovered waits in deferred functions of functions that have recovered a panic, a known number of
// times each: in one that was called, and in the outermost one of goroutines. Then it ends.
package main

import "time"

const rounds = 5

func main() {
	for i := 0; i < rounds; i++ {
		call()
		done := make(chan int)
		go outermost(done)
		<-done
	}
}

//go:noinline
func call() { called() }

//go:noinline
func called() {
	defer wait()
	defer func() { recover() }()
	panic("on purpose")
}

func outermost(done chan<- int) {
	defer close(done)
	defer wait()
	defer func() { recover() }()
	panic("on purpose")
}

//go:noinline
func wait() {
	c := make(chan int)
	go func() {
		time.Sleep(time.Millisecond) // so that the receiver is the one that waits
		c <- 1
	}()
	<-c
}
