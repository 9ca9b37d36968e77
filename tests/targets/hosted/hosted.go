// Package hosted is for targets that are built as libraries: their process has another program.
package hosted

import "os"

// DropArguments makes os.Args those of the process behind "--", if there is such a word.
func DropArguments() {
	for i, word := range os.Args {
		if word == "--" {
			os.Args = os.Args[i:]
			return
		}
	}
}
