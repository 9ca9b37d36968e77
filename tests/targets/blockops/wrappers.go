package main

import "ebpfprof.test/harness"

// Stacks with functions that the compiler makes: Go hides them.
var wrapperOperations = []operation{
	{"wrappedByPointer", 34, wrappedByPointer},
	{"wrappedByEmbedding", 22, wrappedByEmbedding},
	{"wrappedInterface", 14, wrappedInterface},
	{"methodExpression", 14, methodExpression},
	{"methodValue", 10, methodValue},
	{"goWithArguments", 6, startWithArguments},
	{"goMethod", 4, startMethod},
	{"deferWithArguments", 17, deferWithArguments},
}

type awaiter interface{ await() int }

type box struct {
	c     chan int
	extra [3]int
}

//go:noinline
func (b box) await() int { return <-b.c + b.extra[0] }

type outer struct {
	name string
	box
}

type holder struct {
	name string
	awaiter
}

var sink awaiter

//go:noinline
func awaitOn(a awaiter) int { return a.await() }

// wrappedByPointer: the interface holds a pointer, the method has a value receiver.
func wrappedByPointer(n int) {
	b := &box{c: make(chan int)}
	sink = b
	harness.Rounds(n, nil, func() { awaitOn(sink) }, func() { b.c <- 1 })
}

func wrappedByEmbedding(n int) {
	o := &outer{box: box{c: make(chan int)}}
	sink = o
	harness.Rounds(n, nil, func() { awaitOn(sink) }, func() { o.c <- 1 })
}

func wrappedInterface(n int) {
	b := box{c: make(chan int)}
	sink = &holder{awaiter: b}
	harness.Rounds(n, nil, func() { awaitOn(sink) }, func() { b.c <- 1 })
}

func methodExpression(n int) {
	b := &box{c: make(chan int)}
	await := (*box).await
	if n < 0 {
		await = nil
	}
	harness.Rounds(n, nil, func() { await(b) }, func() { b.c <- 1 })
}

func methodValue(n int) {
	b := &box{c: make(chan int)}
	await := sinkOf(b).await
	harness.Rounds(n, nil, func() { await() }, func() { b.c <- 1 })
}

//go:noinline
func sinkOf(a awaiter) awaiter { return a }

// goWithArguments and goMethod: the goroutine begins in a hidden wrapper around the call.
//
//go:noinline
func goWithArguments(p *harness.Partner, c chan int) {
	p.Arrive()
	<-c
	p.Leave()
}

func startWithArguments(n int) {
	c := make(chan int)
	harness.Fresh(n, func(p *harness.Partner) { go goWithArguments(p, c) }, func() { c <- 1 })
}

type worker struct{ c chan int }

//go:noinline
func (w *worker) goMethod(p *harness.Partner) {
	p.Arrive()
	<-w.c
	p.Leave()
}

func startMethod(n int) {
	w := &worker{c: make(chan int)}
	harness.Fresh(n, func(p *harness.Partner) { go w.goMethod(p) }, func() { w.c <- 1 })
}

//go:noinline
func receiveFrom(c chan int, times int) {
	for i := 0; i < times; i++ {
		<-c
	}
}

func deferWithArguments(n int) {
	c := make(chan int)
	block := func() {
		for i := 0; i < 1; i++ {
			defer receiveFrom(c, 1)
		}
	}
	harness.Rounds(n, nil, block, func() { c <- 1 })
}
