//go:build withcgo

package main

/*
#include <time.h>

// No frame pointers, as C is compiled as a rule: only tables tell who called.
__attribute__((noinline, optimize("omit-frame-pointer"))) static void inner(long ns) {
	struct timespec length = {0, ns};
	char room[200];
	for (int i = 0; i < 200; i++)
		((volatile char *)room)[i] = 1;
	nanosleep(&length, 0);
	((volatile char *)room)[0] = 2;
}

__attribute__((noinline, optimize("omit-frame-pointer"))) static void outer(long ns) {
	inner(ns);
	inner(ns / 2);
}

static void sleeps(long ns) { outer(ns); }
*/
import "C"

func init() {
	works["calls"] = calls
}

// calls has goroutines that sleep in C.
func calls() {
	for i := 0; i < 2; i++ {
		go call()
	}
}

func call() {
	for {
		C.sleeps(2_000_000)
	}
}
