//go:build go1.24

package main

import "unsafe"

type label struct{ key, value string }

// runtime/pprof's labelMap from Go 1.24 on.
type labelMap struct{ list []label }

//go:linkname setProfLabel runtime/pprof.runtime_setProfLabel
func setProfLabel(labels unsafe.Pointer)

// setLabels does what pprof.SetGoroutineLabels does, without all that package runtime/pprof links.
func setLabels(pairs ...string) {
	labels := labelMap{}
	for at := 0; at < len(pairs); at += 2 {
		labels.list = append(labels.list, label{pairs[at], pairs[at+1]})
	}
	setProfLabel(unsafe.Pointer(&labels))
}
