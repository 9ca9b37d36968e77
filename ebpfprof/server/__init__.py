"""What `ebpfprof serve` answers: net/http/pprof for programs that have none, a page, metrics."""
