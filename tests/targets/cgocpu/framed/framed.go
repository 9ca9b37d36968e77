// Package framed calls C that is compiled with frame pointers.
package framed

/*
#cgo CFLAGS: -O2 -g -fno-omit-frame-pointer
#include "framed.h"
*/
import "C"

// Work computes in C, three functions deep.
//
//go:noinline
func Work(rounds int) int { return int(C.framed_outer(C.long(rounds))) }

var callback func(rounds int) int

// Back calls C, which calls f.
//
//go:noinline
func Back(rounds int, f func(rounds int) int) int {
	callback = f
	return int(C.framed_back(C.long(rounds)))
}

//export framedCallback
func framedCallback(rounds C.long) { callback(int(rounds)) }
