"""HTTP for `ebpfprof serve`: net/http/pprof for programs that have none, a page, metrics."""
