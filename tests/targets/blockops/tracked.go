//go:build trackall

package main

import _ "unsafe" // go:linkname

// casgstatusAlwaysTrack makes the scheduler track every stop of a goroutine, for the runtime's own
// tests (runtime/proc.go, Go 1.20 and newer).
//
//go:linkname casgstatusAlwaysTrack runtime.casgstatusAlwaysTrack
var casgstatusAlwaysTrack bool

func init() { casgstatusAlwaysTrack = true }
