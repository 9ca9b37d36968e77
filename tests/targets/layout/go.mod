module ebpfprof.test/layout

go 1.19
