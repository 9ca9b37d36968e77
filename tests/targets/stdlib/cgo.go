//go:build withcgo

package main

// static int add(int a, int b) { return a + b; }
import "C"

func inC(value int) int { return int(C.add(C.int(value), 1)) }
