package main

import (
	"context"
	"reflect"
	"time"

	"ebpfprof.test/harness"
)

var channelOperations = []operation{
	{"chanRecv1", 47, chanRecv1},
	{"chanRecv2", 44, chanRecv2},
	{"chanRange", 43, chanRange},
	{"chanRecvClosed", 26, chanRecvClosed},
	{"chanRecvBuffered", 26, chanRecvBuffered},
	{"chanRecvCrowdClosed", 5 * 11, chanRecvCrowdClosed},
	{"chanSend", 44, chanSend},
	{"chanSendFull", 25, chanSendFull},
	{"chanSendPanics", 31, chanSendPanics},
	{"chanBigElement", 13, chanBigElement},
	{"chanPingPong", 2 * 20, chanPingPong},
	{"timerRecv", 14, timerRecv},
	{"contextDone", 13, contextDone},
	{"reflectRecv", 37, reflectRecv},
	{"reflectSend", 29, reflectSend},
}

func chanRecv1(n int) {
	c := make(chan int)
	harness.Rounds(n, nil, func() { <-c }, func() { c <- 1 })
}

func chanRecv2(n int) {
	c := make(chan int)
	block := func() {
		if _, ok := <-c; !ok {
			panic("closed")
		}
	}
	harness.Rounds(n, nil, block, func() { c <- 1 })
}

func chanRange(n int) {
	c := make(chan int)
	block := func() {
		for range c {
			break
		}
	}
	harness.Rounds(n, nil, block, func() { c <- 1 })
}

func chanRecvClosed(n int) {
	var c chan int
	harness.Rounds(n, func() { c = make(chan int) }, func() { <-c }, func() { close(c) })
}

func chanRecvBuffered(n int) {
	c := make(chan int, 3)
	harness.Rounds(n, nil, func() { <-c }, func() { c <- 1 })
}

func chanRecvCrowdClosed(n int) {
	var c chan int
	harness.Crowd(n, 5, func() { c = make(chan int) }, func() { <-c }, func() { close(c) })
}

func chanSend(n int) {
	c := make(chan int)
	harness.Rounds(n, nil, func() { c <- 1 }, func() { <-c })
}

func chanSendFull(n int) {
	var c chan int
	prepare := func() {
		c = make(chan int, 2)
		c <- 1
		c <- 2
	}
	harness.Rounds(n, prepare, func() { c <- 3 }, func() { <-c })
}

// chanSendPanics: another goroutine closes the channel during the send; the event counts, too.
func chanSendPanics(n int) {
	var c chan int
	block := func() {
		defer func() {
			if recover() == nil {
				panic("a send on a closed channel did not panic")
			}
		}()
		c <- 1
	}
	harness.Rounds(n, func() { c = make(chan int) }, block, func() { close(c) })
}

func chanBigElement(n int) {
	type big [1000]int
	c := make(chan big)
	block := func() {
		value := <-c
		if value[999] != 7 {
			panic("the element was not copied")
		}
	}
	harness.Rounds(n, nil, block, func() { c <- big{999: 7} })
}

// chanPingPong: the partner parks to send a ball, and again to receive it back.
func chanPingPong(n int) {
	there, back := make(chan int), make(chan int)
	p := harness.NewPartner(func() {
		there <- 1
		<-back
	})
	for i := 0; i < n/2; i++ {
		p.Begin()
		p.AwaitParked()
		<-there
		p.AwaitParked()
		back <- 1
		p.AwaitEnd()
	}
	p.Stop()
}

// timerRecv: the runtime's timer code wakes the receiver.
func timerRecv(n int) {
	timer := time.NewTimer(time.Hour)
	harness.Rounds(n, nil, func() { <-timer.C }, func() { timer.Reset(time.Microsecond) })
}

func contextDone(n int) {
	var ctx context.Context
	var cancel context.CancelFunc
	prepare := func() { ctx, cancel = context.WithCancel(context.Background()) }
	harness.Rounds(n, prepare, func() { <-ctx.Done() }, func() { cancel() })
}

func reflectRecv(n int) {
	c := make(chan int)
	value := reflect.ValueOf(c)
	harness.Rounds(n, nil, func() { value.Recv() }, func() { c <- 1 })
}

func reflectSend(n int) {
	c := make(chan int)
	value := reflect.ValueOf(c)
	harness.Rounds(n, nil, func() { value.Send(reflect.ValueOf(1)) }, func() { <-c })
}
