package main

import (
	"reflect"

	"ebpfprof.test/harness"
)

var selectOperations = []operation{
	{"selectRecv", 43, selectRecv},
	{"selectSend", 41, selectSend},
	{"selectEither", 40, selectEither},
	{"selectClosed", 24, selectClosed},
	{"selectNilCase", 23, selectNilCase},
	{"selectTwelve", 19, selectTwelve},
	{"selectLoop", 3 * 17, selectLoop},
	{"selectWokenBySelect", 22, selectWokenBySelect},
	{"selectOneRecv", 21, selectOneRecv},
	{"selectOneSend", 20, selectOneSend},
	{"reflectSelect", 15, reflectSelect},
}

func selectRecv(n int) {
	a, b := make(chan int), make(chan string)
	block := func() {
		select {
		case <-a:
		case <-b:
		}
	}
	harness.Rounds(n, nil, block, func() { b <- "" })
}

func selectSend(n int) {
	a, b := make(chan int), make(chan string)
	block := func() {
		select {
		case a <- 1:
		case b <- "":
		}
	}
	harness.Rounds(n, nil, block, func() { <-a })
}

func selectEither(n int) {
	a, b := make(chan int), make(chan int)
	turn := 0
	block := func() {
		select {
		case a <- 1:
		case <-b:
		}
	}
	wake := func() {
		if turn++; turn%2 == 0 {
			<-a
		} else {
			b <- 1
		}
	}
	harness.Rounds(n, nil, block, wake)
}

func selectClosed(n int) {
	a := make(chan int)
	var b chan int
	block := func() {
		select {
		case <-a:
		case <-b:
		}
	}
	harness.Rounds(n, func() { b = make(chan int) }, block, func() { close(b) })
}

func selectNilCase(n int) {
	a := make(chan int)
	var never chan int
	block := func() {
		select {
		case <-a:
		case <-never:
		}
	}
	harness.Rounds(n, nil, block, func() { a <- 1 })
}

func selectTwelve(n int) {
	var c [12]chan int
	for i := range c {
		c[i] = make(chan int)
	}
	turn := 0
	block := func() {
		select {
		case <-c[0]:
		case <-c[1]:
		case <-c[2]:
		case <-c[3]:
		case <-c[4]:
		case <-c[5]:
		case c[6] <- 1:
		case c[7] <- 1:
		case c[8] <- 1:
		case c[9] <- 1:
		case c[10] <- 1:
		case c[11] <- 1:
		}
	}
	wake := func() {
		if i := turn % len(c); i < 6 {
			c[i] <- 1
		} else {
			<-c[i]
		}
		turn++
	}
	harness.Rounds(n, nil, block, wake)
}

// selectLoop: three events a round in one call of the function.
func selectLoop(n int) {
	a, b := make(chan int), make(chan int)
	p := harness.NewPartner(func() {
		for i := 0; i < 3; i++ {
			select {
			case <-a:
			case <-b:
			}
		}
	})
	for i := 0; i < n/3; i++ {
		p.Begin()
		p.AwaitParked()
		a <- 1
		p.AwaitParked()
		b <- 1
		p.AwaitParked()
		a <- 1
		p.AwaitEnd()
	}
	p.Stop()
}

// selectWokenBySelect: both sides are select statements; that of the waker does not park.
func selectWokenBySelect(n int) {
	a, b := make(chan int), make(chan int)
	block := func() {
		select {
		case <-a:
		case <-b:
		}
	}
	wake := func() {
		never := make(chan int)
		select {
		case a <- 1:
		case <-never:
		}
	}
	harness.Rounds(n, nil, block, wake)
}

// selectOneRecv: the compiler makes a plain receive of it.
func selectOneRecv(n int) {
	c := make(chan int)
	block := func() {
		select {
		case <-c:
		}
	}
	harness.Rounds(n, nil, block, func() { c <- 1 })
}

func selectOneSend(n int) {
	c := make(chan int)
	block := func() {
		select {
		case c <- 1:
		}
	}
	harness.Rounds(n, nil, block, func() { <-c })
}

func reflectSelect(n int) {
	a, b := make(chan int), make(chan int)
	cases := []reflect.SelectCase{
		{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(a)},
		{Dir: reflect.SelectSend, Chan: reflect.ValueOf(b), Send: reflect.ValueOf(1)},
	}
	turn := 0
	wake := func() {
		if turn++; turn%2 == 0 {
			a <- 1
		} else {
			<-b
		}
	}
	harness.Rounds(n, nil, func() { reflect.Select(cases) }, wake)
}
