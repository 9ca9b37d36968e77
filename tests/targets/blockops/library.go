//go:build library

package main

import "C"

import "ebpfprof.test/harness"

// Run is main, for a process that has this package as a library.
//
//export Run
func Run() {
	harness.DropHostArguments()
	main()
}
