//go:build withcgo

package main

/*
extern void blockInGo(void);

static void callBack(void) { blockInGo(); }
*/
import "C"

var cgoOperations = []operation{{"blockInGo", 4, 0, fromGo}}

// fromGo: Go calls C, which calls Go, which blocks.
//
//go:noinline
func fromGo() { C.callBack() }
