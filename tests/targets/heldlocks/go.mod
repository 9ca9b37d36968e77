module ebpfprof.test/heldlocks

go 1.19
