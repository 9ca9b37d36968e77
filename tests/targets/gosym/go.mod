module ebpfprof.test/gosym

go 1.19
