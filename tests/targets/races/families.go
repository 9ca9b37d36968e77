package main

import "ebpfprof.test/harness"

// At the end of its chain, each family receives a number, hands it back and takes the lock.

//go:noinline
func crane(levels int, n *nest) int {
	if levels > 1 {
		return crane(levels-1, n) + 1
	}
	number := <-n.in
	n.out <- number
	n.hold()
	return number
}

//go:noinline
func heron(levels int, n *nest) int {
	if levels > 1 {
		return heron(levels-1, n) + 1
	}
	number := 0
	select {
	case number = <-n.in:
	case <-n.never:
	}
	n.out <- number
	n.hold()
	return number
}

//go:noinline
func ibis(levels int, n *nest) int {
	if levels > 1 {
		return ibis(levels-1, n) + 1
	}
	number := <-n.in
	harness.GrowStack(50)
	n.out <- number
	n.hold()
	return number
}

//go:noinline
func stork(levels int, n *nest) int {
	if levels > 1 {
		return stork(levels-1, n) + 1
	}
	harness.GrowStack(100)
	number := <-n.in
	n.out <- number
	n.hold()
	return number
}

//go:noinline
func egret(levels int, n *nest) int {
	if levels > 1 {
		return egret(levels-1, n) + 1
	}
	number := 0
	select {
	case number = <-n.in:
	case n.never <- 0:
	}
	harness.GrowStack(10)
	n.out <- number
	n.hold()
	return number
}
