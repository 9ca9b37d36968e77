//go:build withcgo

package main

/*
extern void unlockInGo(void);

static void callBack(void) { unlockInGo(); }
*/
import "C"

import "sync"

var cgoOperations = []operation{
	{"calledFromC", 51, calledFromC},
	{"calledFromCRW", 49, calledFromCRW},
}

var heldByC interface{ Unlock() }

// calledFromC: Go calls C, which calls Go, which releases the lock.
func calledFromC(n int) {
	var mu sync.Mutex
	heldByC = &mu
	rounds(n, mu.Lock, passer(&mu), func() { C.callBack() })
}

func calledFromCRW(n int) {
	var mu sync.RWMutex
	heldByC = mu.RLocker()
	rounds(n, mu.RLock, passer(&mu), func() { C.callBack() })
}
