module ebpfprof.test/locks

go 1.19
