//go:build withcgo

package main

/*
#include <unistd.h>

extern void blockInGo(int depth);

static void callBack(int depth) { blockInGo(depth); }
static void waitInC(void) { for (;;) pause(); }
*/
import "C"

var cgoCalls = []func(){
	func() { fromGo(1) },
	func() { fromGo(2) },
	func() { C.waitInC() },
}

// fromGo: Go calls C, which calls Go, which blocks, or does the same again.
//
//go:noinline
func fromGo(depth int) { C.callBack(C.int(depth)) }
