//go:build go1.25 && withcgo

package main

/*
extern void releaseInGo(void);

static void callBack(void) { releaseInGo(); }
*/
import "C"

var cgoOperations = []operation{
	{"calledFromC", calledFromC},
	{"calledFromCOnSystemStack", calledFromCOnSystemStack},
}

// releasedFromC runs where C called Go.
var releasedFromC func()

// calledFromC: Go calls C, which calls Go, which releases the lock.
//
//go:noinline
func calledFromC(mu *mutex, sleeping func()) {
	releasedFromC = func() {
		lock(mu)
		sleeping()
		unlock(mu)
	}
	C.callBack()
}

//go:noinline
func calledFromCOnSystemStack(mu *mutex, sleeping func()) {
	releasedFromC = func() {
		lock(mu)
		sleeping()
		systemstack(func() { unlock(mu) })
	}
	C.callBack()
}
