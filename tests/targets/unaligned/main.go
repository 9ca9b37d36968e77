// Unaligned has two goroutines that wait for a WaitGroup each: of one the address is a multiple of
// eight, of the other one only before Go 1.18, where it is a multiple of four.
//
// Protocol: it prints "ready PID". To each line it answers with the addresses of both, "groups A B",
// once both goroutines wait. It ends when its input closes.
package main

import (
	"fmt"
	"sync"
	"unsafe"

	"ebpfprof.test/harness"
)

type work struct {
	aligned sync.WaitGroup
	number  int64
	flag    int32
	group   sync.WaitGroup
}

func main() {
	all := new(work)
	all.aligned.Add(1)
	all.group.Add(1)
	for _, wait := range []func(){func() { waitAligned(all) }, func() { waitGroup(all) }} {
		partner := harness.NewPartner(wait)
		partner.Begin()
		partner.AwaitParked()
	}
	harness.Ready()
	for harness.Next() {
		fmt.Println("groups", address(&all.aligned), address(&all.group))
	}
}

func address(group *sync.WaitGroup) uintptr { return uintptr(unsafe.Pointer(group)) }

//go:noinline
func waitAligned(all *work) { all.aligned.Wait() }

//go:noinline
func waitGroup(all *work) { all.group.Wait() }
