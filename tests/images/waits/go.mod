module ebpfprof.test/waits

go 1.19
