//go:build alwaystrack && go1.21

package main

import _ "unsafe" // for go:linkname

// The runtime's own tests set it: then the scheduler tracks every stop of every goroutine, not one
// in eight. Programs of Go 1.23 and newer are linked with -checklinkname=0 for this.
//
//go:linkname casgstatusAlwaysTrack runtime.casgstatusAlwaysTrack
var casgstatusAlwaysTrack bool

func init() {
	casgstatusAlwaysTrack = true
}
