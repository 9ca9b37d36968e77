//go:build withcgo

package main

import "ebpfprof.test/harness"

/*
#include <time.h>

extern void blockInGo(void);

static void callBack(void) { blockInGo(); }

static void sleepInC(void) {
	struct timespec length = {0, 100000};
	nanosleep(&length, 0);
}
*/
import "C"

var cgoOperations = []operation{
	{"calledFromC", 15, calledFromC},
	{"sleepingInC", 0, sleepingInC},
}

var fromC = make(chan int)

// calledFromC: Go calls C, which calls Go, which blocks.
func calledFromC(n int) {
	harness.Rounds(n, nil, func() { C.callBack() }, func() { fromC <- 1 })
}

func sleepingInC(int) {
	harness.Together(3, func() {
		for i := 0; i < 20; i++ {
			C.sleepInC()
		}
	})
}
