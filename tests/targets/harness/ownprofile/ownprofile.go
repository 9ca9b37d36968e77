// Package ownprofile writes the profiles of Go's own profilers, for comparison.
package ownprofile

import (
	"os"
	"runtime/pprof"

	"ebpfprof.test/harness"
)

// Write writes a profile to a file, unless its path is empty.
func Write(profile, path string) {
	if path == "" {
		return
	}
	file, err := os.Create(path)
	harness.Check(err)
	harness.Check(pprof.Lookup(profile).WriteTo(file, 0))
	harness.Check(file.Close())
}
