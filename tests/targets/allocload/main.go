// Allocload allocates: what a profile of allocations costs shows in the time that this takes. It
// keeps no memory profile.
//
// Commands, a line each:
//
//	rate N         sets runtime.MemProfileRate, as for Go's own profile; "done"
//	WORK N         N rounds of json, small or buffers; "took NANOSECONDS"
package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"time"

	"ebpfprof.test/harness"
)

type order struct {
	ID    int               `json:"id"`
	Name  string            `json:"name"`
	Items []item            `json:"items"`
	Tags  map[string]string `json:"tags"`
}

type item struct {
	Name  string  `json:"name"`
	Price float64 `json:"price"`
}

type node struct {
	left, right *node
	value       int
}

var (
	tree *node
	sum  int
	hold [8][]byte
)

// text decodes and encodes: strings, maps, slices, interfaces.
func text(rounds int) {
	source := []byte(`{"id":7,"name":"an order","items":[{"name":"one","price":1.5},` +
		`{"name":"two","price":2.5}],"tags":{"tenant":"a","tier":"gold"}}`)
	for i := 0; i < rounds; i++ {
		var found order
		harness.Check(json.Unmarshal(source, &found))
		written, err := json.Marshal(&found)
		harness.Check(err)
		sum += len(written)
	}
}

func grow(levels int) *node {
	if levels == 0 {
		return &node{value: 1}
	}
	return &node{grow(levels - 1), grow(levels - 1), levels}
}

// small does little but allocate: trees of small nodes.
func small(rounds int) {
	for i := 0; i < rounds; i++ {
		tree = grow(10)
	}
}

// buffers fills buffers of 64 KiB.
func buffers(rounds int) {
	for i := 0; i < rounds; i++ {
		buffer := make([]byte, 64<<10)
		for at := range buffer {
			buffer[at] = byte(at)
		}
		hold[i&7] = buffer
	}
}

func main() {
	works := map[string]func(int){"json": text, "small": small, "buffers": buffers}
	harness.Ready()
	for harness.Next() {
		words := harness.Words()
		count := harness.Number(words[1])
		if words[0] == "rate" {
			runtime.MemProfileRate = count
			fmt.Println("done")
			continue
		}
		began := time.Now()
		works[words[0]](count)
		fmt.Println("took", time.Since(began).Nanoseconds())
	}
}
