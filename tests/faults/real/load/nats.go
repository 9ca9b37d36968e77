package main

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"ebpfprof.test/harness"
	natsgo "github.com/nats-io/nats.go"
)

const (
	natsClients    = 4222 // of the first node; the others have the next tens
	natsRoutes     = 6222
	natsMonitors   = 8222
	natsPublishers = 16
	natsPeriod     = 12 * time.Millisecond
	messageBytes   = 512
	streamBytes    = 64 << 20
)

const natsSettings = `
server_name: n%[1]d
listen: "127.0.0.1:%[2]d"
http: "127.0.0.1:%[3]d"
jetstream { store_dir: "%[4]s", sync_interval: always }
%[5]s
`

// nats publishes messages to a stream in files, and acknowledges them. The leader is explained.
func nats(f *fleet, nodes int) int {
	var routes []string
	for node := 0; node < nodes; node++ {
		routes = append(routes, fmt.Sprintf(`"nats://127.0.0.1:%d"`, natsRoutes+10*node))
	}
	pids := map[string]int{}
	for node := nodes - 1; node >= 0; node-- {
		cluster := ""
		if nodes > 1 {
			cluster = fmt.Sprintf(`cluster { name: orders, listen: "127.0.0.1:%d", routes: [%s] }`,
				natsRoutes+10*node, strings.Join(routes, ", "))
		}
		name := fmt.Sprintf("n%d", node)
		settings := f.file(name+".conf", fmt.Sprintf(natsSettings, node, natsClients+10*node,
			natsMonitors+10*node, f.folder(name), cluster))
		pids[name] = f.run(node == 0, "nats-server", "--config", settings)
	}
	await(func() error {
		answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/healthz", natsMonitors))
		if err == nil {
			answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				err = fmt.Errorf("not healthy: %s", answer.Status)
			}
		}
		return err
	})
	pid := pids["n0"]
	stream := natsStream()
	await(func() error {
		info, err := stream.AddStream(&natsgo.StreamConfig{
			Name: "orders", Subjects: []string{"orders.>"}, Storage: natsgo.FileStorage,
			Replicas: nodes, MaxBytes: streamBytes, Discard: natsgo.DiscardOld,
		})
		if err == nil && info.Cluster != nil && nodes > 1 {
			pid = pids[info.Cluster.Leader]
			if pid == 0 {
				err = fmt.Errorf("no leader")
			}
		}
		return err
	})
	message := []byte(strings.Repeat("m", messageBytes))
	for i := 0; i < 4; i++ { // connections
		publisher := natsStream()
		repeat(natsPublishers/4, natsPeriod, func(client, number int) {
			publisher.Publish(fmt.Sprintf("orders.%d.%d", i, client), message)
		})
	}
	_, err := natsStream().QueueSubscribe("orders.>", "billing", func(message *natsgo.Msg) {
		message.Ack()
	}, natsgo.ManualAck(), natsgo.Durable("billing"), natsgo.DeliverNew())
	harness.Check(err)
	return pid
}

// natsStream connects to the first node.
func natsStream() natsgo.JetStreamContext {
	connection, err := natsgo.Connect(fmt.Sprintf("nats://127.0.0.1:%d", natsClients))
	harness.Check(err)
	stream, err := connection.JetStream(natsgo.MaxWait(longestStart))
	harness.Check(err)
	return stream
}
