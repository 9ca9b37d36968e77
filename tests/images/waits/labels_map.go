//go:build !go1.24

package main

import "unsafe"

// runtime/pprof's labelMap before Go 1.24.
type labelMap map[string]string

//go:linkname setProfLabel runtime/pprof.runtime_setProfLabel
func setProfLabel(labels unsafe.Pointer)

// setLabels does what pprof.SetGoroutineLabels does, without all that package runtime/pprof links.
func setLabels(pairs ...string) {
	labels := labelMap{}
	for at := 0; at < len(pairs); at += 2 {
		labels[pairs[at]] = pairs[at+1]
	}
	setProfLabel(unsafe.Pointer(&labels))
}
