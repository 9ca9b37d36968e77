//go:build goexperiment.arenas

package main

import "arena"

type inArena struct {
	outside *int
	pad     [127]int
}

var (
	region *arena.Arena
	parts  *inArena
)

const chunk = 8 << 20

// fillArena takes two chunks and a half; each object there keeps one outside.
//
//go:noinline
func fillArena() {
	region = arena.NewArena()
	for i := 0; i < 5*chunk/2/1024; i++ {
		parts = arena.New[inArena](region)
		parts.outside = number(i)
	}
}

func cutArena(name string) {
	if name == "arena" {
		region.Free()
		region, parts = nil, nil
	}
}
