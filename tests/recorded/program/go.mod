module ebpfprof.test/recorded

go 1.27
