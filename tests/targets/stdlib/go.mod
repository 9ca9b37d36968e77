module ebpfprof.test/stdlib

go 1.19
