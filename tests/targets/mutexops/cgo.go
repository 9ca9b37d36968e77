//go:build withcgo

package main

/*
extern void unlockInGo(void);

static void callBack(void) { unlockInGo(); }
*/
import "C"

import (
	"sync"

	"ebpfprof.test/harness"
)

var cgoOperations = []operation{
	{"calledFromC", 51, calledFromC},
	{"calledFromCRW", 49, calledFromCRW},
}

var heldByC interface{ Unlock() }

// calledFromC: Go calls C, which calls Go, which releases the lock.
func calledFromC(n int) {
	var mu sync.Mutex
	heldByC = &mu
	harness.Rounds(n, mu.Lock, passer(&mu), func() { C.callBack() })
}

func calledFromCRW(n int) {
	var mu sync.RWMutex
	heldByC = mu.RLocker()
	harness.Rounds(n, mu.RLock, passer(&mu), func() { C.callBack() })
}
