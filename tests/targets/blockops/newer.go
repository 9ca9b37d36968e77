//go:build go1.23

package main

import (
	"iter"

	"ebpfprof.test/harness"
)

var newerOperations = []operation{
	{"pulled", 25, pulled},
	{"rangeOver", 15, rangeOver},
}

func received(c chan int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for yield(<-c) {
		}
	}
}

// pulled: the wait happens in a coroutine.
func pulled(n int) {
	c := make(chan int)
	start := func(p *harness.Partner) {
		sequence := func(yield func(int) bool) {
			p.Arrive()
			yield(<-c)
		}
		go func() {
			next, stop := iter.Pull(sequence)
			next()
			stop()
			p.Leave()
		}()
	}
	harness.Fresh(n, start, func() { c <- 1 })
}

// rangeOver: the compiler makes a function of the loop's body.
func rangeOver(n int) {
	c := make(chan int)
	source := make(chan int, n)
	block := func() {
		source <- 1
		for range received(source) {
			<-c
			break
		}
	}
	harness.Rounds(n, nil, block, func() { c <- 1 })
}
