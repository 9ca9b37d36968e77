// Programs of tests/faults that need modules of others, which come from the Go module proxy.
module ebpfprof.test/modules

go 1.25.0

require (
	ebpfprof.test v0.0.0
	golang.org/x/sync v0.20.0
	google.golang.org/grpc v1.80.0
)

require (
	golang.org/x/net v0.49.0 // indirect
	golang.org/x/sys v0.40.0 // indirect
	golang.org/x/text v0.33.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260120221211-b8f7ae30c516 // indirect
	google.golang.org/protobuf v1.36.11 // indirect
)

replace ebpfprof.test => ../../targets
