// Package frameless calls C that is compiled without frame pointers.
package frameless

/*
#cgo CFLAGS: -O2 -g -fomit-frame-pointer
#include "frameless.h"
*/
import "C"

// Work computes in C, three functions deep.
//
//go:noinline
func Work(rounds int) int { return int(C.frameless_outer(C.long(rounds))) }

var callback func(rounds int) int

// Back calls C, which calls f.
//
//go:noinline
func Back(rounds int, f func(rounds int) int) int {
	callback = f
	return int(C.frameless_back(C.long(rounds)))
}

//export framelessCallback
func framelessCallback(rounds C.long) { callback(int(rounds)) }
