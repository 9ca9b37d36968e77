//go:build go1.23

package main

import "iter"

var nexts []func() (int, bool)

// startCoroutines makes two coroutines: one has never run, the other one has yielded.
func startCoroutines() {
	endless := func(yield func(int) bool) {
		for yield(0) {
		}
	}
	for range 2 {
		next, _ := iter.Pull(endless)
		nexts = append(nexts, next)
	}
	nexts[1]()
}
