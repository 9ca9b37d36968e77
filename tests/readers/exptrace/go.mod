// The reader of execution traces that other tools use, outside of Go's own repository.
module ebpfprof.test/exptrace

go 1.26.0

require golang.org/x/exp v0.0.0-20261113113407-e3970619a1a4
