package main

import "sync"

const (
	growers   = 4
	levels    = 100
	keptNodes = 200_000
)

type node struct {
	left, right *node
	values      [4]int
}

// kept has the nodes that the garbage collector must mark each time.
var kept *node

// garbage allocates, and grows stacks. A unit is a goroutine that goes a hundred calls deep on a
// new stack, allocates on each level and sends its nodes to the goroutine that waits for them.
func garbage(p parameters) {
	if kept == nil {
		kept = tree(keptNodes)
	}
	var all sync.WaitGroup
	for i := 0; i < growers; i++ {
		units := share(p.units, i, growers)
		all.Add(1)
		go below(p.frames, func() {
			defer all.Done()
			for i := 0; i < units; i++ {
				grown := make(chan *node)
				go func() { grown <- grow(levels) }()
				if (<-grown).left == nil {
					panic("workloads: nothing grew")
				}
			}
		})
	}
	all.Wait()
}

func tree(nodes int) *node {
	if nodes == 0 {
		return nil
	}
	return &node{left: tree((nodes - 1) / 2), right: tree(nodes - 1 - (nodes-1)/2)}
}

// grow has a frame of more than 128 bytes.
//
//go:noinline
func grow(level int) *node {
	var values [16]int
	for i := range values {
		values[i] = level * i
	}
	made := &node{}
	if level > 0 {
		made.left = grow(level - 1)
	}
	made.values[level%4] = values[level%16]
	return made
}
