//go:build go1.25

package main

import (
	"testing"
	"testing/synctest"
	"time"

	"ebpfprof.test/harness"
)

// startBubble has goroutines wait in a bubble of testing/synctest, one of them for something outside.
func startBubble() {
	begun := make(chan bool, 2)
	test := func(t *testing.T) {
		synctest.Test(t, func(*testing.T) {
			inside := make(chan int)
			go func() { begun <- true; <-inside }()
			go func() { begun <- true; <-never }()
			time.Sleep(time.Hour)
		})
	}
	all := func(string, string) (bool, error) { return true, nil }
	go testing.Main(all, []testing.InternalTest{{Name: "bubble", F: test}}, nil, nil)
	harness.Poll(func() bool { return len(begun) == 2 })
}
