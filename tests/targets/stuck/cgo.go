//go:build withcgo

package main

// static int one(void) { return 1; }
import "C"

import "ebpfprof.test/harness"

func useC() { harness.Assert(C.one() == 1) }
