//go:build goexperiment.runtimesecret

package main

import (
	"runtime/secret"

	"ebpfprof.test/harness"
)

// startSecret has a goroutine wait in secret mode.
func startSecret() {
	begun := make(chan bool, 1)
	go secret.Do(func() {
		begun <- true
		<-never
	})
	harness.Poll(func() bool { return len(begun) == 1 })
}
