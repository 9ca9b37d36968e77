// Grpcquota serves stock levels, for which it asks a warehouse by gRPC. The warehouse allows two
// concurrent streams on a connection, and the service has one connection.
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
	"ebpfprof.test/modules/peer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
)

const lookupTime = 15 * time.Millisecond

// The health service of the gRPC module stands for that of a warehouse: it needs no generated code.
type warehouse struct {
	grpc_health_v1.UnimplementedHealthServer
}

func (warehouse) Check(
	ctx context.Context, request *grpc_health_v1.HealthCheckRequest,
) (*grpc_health_v1.HealthCheckResponse, error) {
	time.Sleep(lookupTime)
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

func serveWarehouse() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Check(err)
	server := grpc.NewServer(grpc.MaxConcurrentStreams(2))
	grpc_health_v1.RegisterHealthServer(server, warehouse{})
	go server.Serve(listener)
	return listener.Addr().String()
}

type stock struct{ warehouse grpc_health_v1.HealthClient }

//go:noinline
func (s *stock) serveLevel(w http.ResponseWriter, r *http.Request) {
	answer, err := s.warehouse.Check(r.Context(), &grpc_health_v1.HealthCheckRequest{Service: r.URL.Path})
	fmt.Fprint(w, answer.GetStatus(), err)
}

func main() {
	if peer.Run(serveWarehouse) {
		return
	}
	connection, err := grpc.NewClient(
		peer.Start(), grpc.WithTransportCredentials(insecure.NewCredentials()),
	)
	harness.Check(err)
	service := &stock{warehouse: grpc_health_v1.NewHealthClient(connection)}
	traffic.Start(traffic.Serve(http.HandlerFunc(service.serveLevel)), 5, 100)
	harness.Ready()
	harness.AwaitEnd()
}
