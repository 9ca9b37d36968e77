//go:build withcgo

package main

// #include <unistd.h>
// static void sleepLong(void) { sleep(3600); }
import "C"

//go:noinline
func sleepInC() { C.sleepLong() }
