package main

import (
	"net/http"

	"ebpfprof.test/harness/traffic"
)

// A shippingDesk asks a carrier, to which its transport opens two connections at most.
type shippingDesk struct {
	carrier *http.Client
	url     string
}

//go:noinline
func (d *shippingDesk) serveLabel(w http.ResponseWriter, r *http.Request) {
	label, err := get(d.carrier, d.url+"/15ms/label")
	reply(w, label, err)
}

func serveShipping() {
	desk := &shippingDesk{
		carrier: &http.Client{Transport: &http.Transport{MaxConnsPerHost: 2, MaxIdleConnsPerHost: 2}},
		url:     startPeer("backend"),
	}
	url := traffic.Serve(http.HandlerFunc(desk.serveLabel))
	traffic.Send(url, traffic.Load{Path: "/label", Clients: 5})
}

func init() { register("transport", serveShipping) }
