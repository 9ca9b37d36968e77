//go:build library

package main

import "C"

import "os"

// Run is main, for a process that has this package as a library. Its arguments are those of the
// process behind "--", if there is such a word.
//
//export Run
func Run() {
	for i, word := range os.Args {
		if word == "--" {
			os.Args = os.Args[i:]
			break
		}
	}
	main()
}
