module ebpfprof.test/frames

go 1.19
