//go:build go1.21

package main

import (
	"runtime"
	_ "unsafe" // for linkname
)

//go:linkname frameStartLine runtime/pprof.runtime_FrameStartLine
func frameStartLine(frame *runtime.Frame) int

//go:linkname frameSymbolName runtime/pprof.runtime_FrameSymbolName
func frameSymbolName(frame *runtime.Frame) string

// symbol returns the name and the start line that runtime/pprof writes for a frame.
func symbol(frame *runtime.Frame) (string, int) {
	return frameSymbolName(frame), frameStartLine(frame)
}
