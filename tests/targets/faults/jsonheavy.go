package main

import (
	"encoding/json"
	"fmt"
	"net/http"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
)

// An orderGateway passes an order on: it decodes all of it to change one field.
type orderGateway struct{ order []byte }

//go:noinline
func (g *orderGateway) forward(user string) []byte {
	order := map[string]interface{}{}
	harness.Check(json.Unmarshal(g.order, &order))
	order["user"] = user
	forwarded, err := json.Marshal(order)
	harness.Check(err)
	return forwarded
}

func (g *orderGateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Write(g.forward(r.URL.Path))
}

func init() { register("jsonheavy", serveGateway) }

func serveGateway() {
	var lines []map[string]interface{}
	for i := 0; i < 200; i++ {
		lines = append(lines, map[string]interface{}{
			"article": fmt.Sprint("article ", i), "cents": 1000 + i, "number": i % 5, "gift": i%2 == 0,
		})
	}
	order, err := json.Marshal(map[string]interface{}{"user": "", "lines": lines})
	harness.Check(err)
	underLoad(&orderGateway{order}, traffic.Load{Clients: 4})
}
