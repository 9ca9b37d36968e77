package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"ebpfprof.test/harness"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	etcdClients = 2379 // of the first node; the others have the next tens
	etcdPeers   = 2380
	etcdWriters = 12
	etcdPeriod  = 15 * time.Millisecond
	valueBytes  = 512
	valueKeys   = 2000
)

// etcd stores values in a cluster, and reads them. The leader is explained: the first node.
func etcd(f *fleet, nodes int) int {
	var members, clients []string
	for node := 0; node < nodes; node++ {
		members = append(members, fmt.Sprintf("n%d=http://127.0.0.1:%d", node, etcdPeers+10*node))
		clients = append(clients, fmt.Sprintf("http://127.0.0.1:%d", etcdClients+10*node))
	}
	var pid int
	for node := nodes - 1; node >= 0; node-- {
		peer := strings.TrimPrefix(members[node], fmt.Sprintf("n%d=", node))
		pid = f.run(node == 0, "etcd",
			"--name", fmt.Sprintf("n%d", node), "--data-dir", f.folder(fmt.Sprintf("n%d", node)),
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--listen-client-urls", clients[node], "--advertise-client-urls", clients[node],
			"--initial-cluster", strings.Join(members, ","), "--log-level", "warn")
	}
	await(func() error { return makeLeader(clients) })
	value := strings.Repeat("v", valueBytes)
	for i := 0; i < 4; i++ { // connections
		client := etcdClient(clients[0])
		repeat(etcdWriters/4, etcdPeriod, func(writer, number int) {
			client.Put(context.Background(), key(i*etcdWriters+writer, number), value)
		})
		repeat(etcdWriters/4, etcdPeriod, func(reader, number int) {
			client.Get(context.Background(), key(i*etcdWriters+reader, number))
		})
	}
	return pid
}

func key(client, number int) string {
	return fmt.Sprintf("orders/%d/%d", client, number%valueKeys)
}

func etcdClient(address string) *clientv3.Client {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{address}, DialTimeout: longestStart, Logger: zap.NewNop(),
	})
	harness.Check(err)
	return client
}

// makeLeader returns without an error if the first node leads.
func makeLeader(nodes []string) error {
	limited, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var first uint64
	for _, node := range nodes {
		client := etcdClient(node)
		defer client.Close()
		status, err := client.Status(limited, node)
		if err != nil {
			return err
		}
		member := status.Header.MemberId
		if node == nodes[0] {
			first = member
		}
		if status.Leader == first {
			return nil
		}
		if status.Leader == member {
			client.MoveLeader(limited, first)
		}
	}
	return fmt.Errorf("another node leads than %x", first)
}
