//go:build library

package main

import "C"

import "ebpfprof.test/hosted"

// Run is main, for a process that has this package as a library.
//
//export Run
func Run() {
	hosted.DropArguments()
	main()
}
