package main

import (
	"context"
	"net"
	"net/http"
	"net/rpc"

	"connectrpc.com/connect"
	"ebpfprof.test/harness"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/emptypb"
)

// The health service of the gRPC module stands for that of a shop: it needs no generated code.
type health struct {
	grpc_health_v1.UnimplementedHealthServer
}

type (
	healthRequest  = grpc_health_v1.HealthCheckRequest
	healthResponse = grpc_health_v1.HealthCheckResponse
)

func (health) Check(ctx context.Context, request *healthRequest) (*healthResponse, error) {
	if request.Service == "spawn" {
		theShop.serveSpawn(nil, nil)
	} else {
		theShop.checkout()
	}
	return &healthResponse{}, nil
}

func (health) Watch(
	request *healthRequest, stream grpc.ServerStreamingServer[healthResponse],
) error {
	theShop.stock()
	return stream.Send(&healthResponse{})
}

func serveGRPC(listener net.Listener) []func() {
	intercept := func(
		ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
	) (any, error) {
		answer, err := handler(ctx, request)
		return answer, err
	}
	interceptStream := func(
		server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler,
	) error {
		return handler(server, stream)
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(intercept, intercept),
		grpc.ChainStreamInterceptor(interceptStream, interceptStream),
	)
	grpc_health_v1.RegisterHealthServer(server, health{})
	go server.Serve(listener)
	connection, err := grpc.NewClient(
		listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
	)
	harness.Check(err)
	client := grpc_health_v1.NewHealthClient(connection)
	check := func(service string) func() {
		return func() {
			_, err := client.Check(context.Background(), &healthRequest{Service: service})
			harness.Check(err)
		}
	}
	watch := func() {
		stream, err := client.Watch(context.Background(), &healthRequest{})
		harness.Check(err)
		for err == nil {
			_, err = stream.Recv()
		}
	}
	return []func(){check("checkout"), check("closure"), watch, check("spawn")}
}

type (
	emptyRequest  = connect.Request[emptypb.Empty]
	emptyResponse = connect.Response[emptypb.Empty]
)

func (s *shop) connectCheckout(ctx context.Context, r *emptyRequest) (*emptyResponse, error) {
	s.checkout()
	return connect.NewResponse(&emptypb.Empty{}), nil
}

func (s *shop) connectStock(
	ctx context.Context, r *emptyRequest, stream *connect.ServerStream[emptypb.Empty],
) error {
	s.stock()
	return stream.Send(&emptypb.Empty{})
}

func (s *shop) connectSpawn(ctx context.Context, r *emptypb.Empty) (*emptypb.Empty, error) {
	s.serveSpawn(nil, nil)
	return r, nil
}

func serveConnect(listener net.Listener) []func() {
	intercept := connect.WithInterceptors(connect.UnaryInterceptorFunc(
		func(next connect.UnaryFunc) connect.UnaryFunc {
			return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
				answer, err := next(ctx, r)
				return answer, err
			}
		},
	))
	mux := http.NewServeMux()
	mux.Handle("/shop/checkout", connect.NewUnaryHandler("/shop/checkout", theShop.connectCheckout))
	mux.Handle("/shop/closure", connect.NewUnaryHandler(
		"/shop/closure",
		func(ctx context.Context, r *emptyRequest) (*emptyResponse, error) {
			wait()
			return connect.NewResponse(&emptypb.Empty{}), nil
		},
	))
	mux.Handle(
		"/shop/stock", connect.NewServerStreamHandler("/shop/stock", theShop.connectStock, intercept),
	)
	mux.Handle(
		"/shop/spawn", connect.NewUnaryHandlerSimple("/shop/spawn", theShop.connectSpawn, intercept),
	)
	go http.Serve(listener, logged(mux))
	url := "http://" + listener.Addr().String() + "/shop/"
	unary := func(name string) func() {
		client := connect.NewClient[emptypb.Empty, emptypb.Empty](http.DefaultClient, url+name)
		return func() {
			_, err := client.CallUnary(context.Background(), connect.NewRequest(&emptypb.Empty{}))
			harness.Check(err)
		}
	}
	stock := connect.NewClient[emptypb.Empty, emptypb.Empty](http.DefaultClient, url+"stock")
	stream := func() {
		answers, err := stock.CallServerStream(
			context.Background(), connect.NewRequest(&emptypb.Empty{}),
		)
		harness.Check(err)
		for answers.Receive() {
		}
		harness.Check(answers.Close())
	}
	return []func(){unary("checkout"), unary("closure"), stream, unary("spawn")}
}

// Arguments and answers of net/rpc.
type Nothing struct{}

type Shop struct{}

func (Shop) Checkout(Nothing, *Nothing) error {
	theShop.checkout()
	return nil
}

func (*Shop) Closure(Nothing, *Nothing) error {
	func() { wait() }()
	return nil
}

func (*Shop) Stock(Nothing, *Nothing) error {
	theShop.stock()
	return nil
}

func (*Shop) Spawn(Nothing, *Nothing) error {
	theShop.serveSpawn(nil, nil)
	return nil
}

func serveRPC(listener net.Listener) []func() {
	harness.Check(rpc.Register(&Shop{}))
	go rpc.Accept(listener)
	client, err := rpc.Dial("tcp", listener.Addr().String())
	harness.Check(err)
	var requests []func()
	for _, method := range []string{"Checkout", "Closure", "Stock", "Spawn"} {
		name := "Shop." + method
		requests = append(requests, func() {
			harness.Check(client.Call(name, Nothing{}, &Nothing{}))
		})
	}
	return requests
}

func (s *shop) receiveCheckout(m *message.Message) error {
	s.checkout()
	return nil
}

func (s *shop) receiveStock(m *message.Message) ([]*message.Message, error) {
	s.stock()
	return nil, nil
}

func (s *shop) receiveSpawn(m *message.Message) error {
	s.serveSpawn(nil, nil)
	return nil
}

func serveWatermill(listener net.Listener) []func() {
	harness.Check(listener.Close())
	config := gochannel.Config{BlockPublishUntilSubscriberAck: true}
	queue := gochannel.NewGoChannel(config, watermill.NopLogger{})
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	harness.Check(err)
	router.AddMiddleware(func(next message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) { return next(m) }
	})
	router.AddConsumerHandler("checkout", "checkout", queue, theShop.receiveCheckout)
	router.AddConsumerHandler("closure", "closure", queue, func(*message.Message) error {
		wait()
		return nil
	})
	router.AddHandler("stock", "stock", queue, "out", queue, theShop.receiveStock)
	router.AddConsumerHandler("spawn", "spawn", queue, theShop.receiveSpawn)
	go func() { harness.Check(router.Run(context.Background())) }()
	<-router.Running()
	var requests []func()
	for _, topic := range []string{"checkout", "closure", "stock", "spawn"} {
		topic := topic
		requests = append(requests, func() {
			harness.Check(queue.Publish(topic, message.NewMessage(watermill.NewUUID(), nil)))
		})
	}
	return requests
}
