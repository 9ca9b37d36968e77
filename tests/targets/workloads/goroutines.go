package main

import (
	"runtime"
	"time"
)

// sampling takes goroutine profiles until it is closed.
type sampling chan bool

// sampleGoroutines takes so many goroutine profiles a second, as fgprof does.
func sampleGoroutines(hz int) sampling {
	done := make(sampling)
	go func() {
		ticker := time.NewTicker(time.Second / time.Duration(hz))
		defer ticker.Stop()
		records := make([]runtime.StackRecord, 1<<12)
		for {
			select {
			case <-ticker.C:
				runtime.GoroutineProfile(records)
			case <-done:
				return
			}
		}
	}()
	return done
}
