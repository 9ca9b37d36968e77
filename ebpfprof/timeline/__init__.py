"""What goroutines, processors of Go and threads did, moment by moment; knows nothing of BPF."""
