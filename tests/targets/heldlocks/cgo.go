//go:build withcgo

package main

/*
static int answer(void) { return 42; }
*/
import "C"

func callC() { registry.size += int(C.answer()) }
