package main

import (
	"context"
	"net"
	"net/http"
	"time"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
)

func init() {
	registerPeer("nameserver", serveNames)
	register("slowdns", serveTracking)
}

// serveNames answers each question with 127.0.0.1, late.
func serveNames() string {
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	harness.Check(err)
	go func() {
		for {
			question := make([]byte, 512)
			size, from, err := socket.ReadFrom(question)
			harness.Check(err)
			go func() {
				answerAfter("40ms")
				socket.WriteTo(answerTo(question[:size]), from)
			}()
		}
	}()
	return socket.LocalAddr().String()
}

// answerTo returns the answer to a DNS question (RFC 1035, section 4.1).
func answerTo(question []byte) []byte {
	end := 12
	for question[end] != 0 {
		end += 1 + int(question[end])
	}
	end += 5
	answer := append([]byte{}, question[:end]...)
	answer[2], answer[3] = 0x84, 0x00 // an authoritative answer
	answer[7], answer[11] = 0, 0      // no answer yet, no additional records
	if answer[end-3] == 1 {           // an A record is asked for
		answer[7] = 1
		answer = append(answer, 0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1)
	}
	return answer
}

// A parcelTracker connects for each request, since its transport keeps no connection. So it asks
// the name server each time.
type parcelTracker struct {
	carrier *http.Client
	url     string
}

//go:noinline
func (t *parcelTracker) serveParcel(w http.ResponseWriter, r *http.Request) {
	text, err := get(t.carrier, t.url+"/35ms/parcel")
	reply(w, text, err)
}

func serveTracking() {
	nameserver := startPeer("nameserver")
	dialer := &net.Dialer{
		Timeout: 5 * time.Second,
		Resolver: &net.Resolver{
			PreferGo: true,
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "udp", nameserver)
			},
		},
	}
	_, port, err := net.SplitHostPort(startPeer("backend")[len("http://"):])
	harness.Check(err)
	tracker := &parcelTracker{
		carrier: &http.Client{
			Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true},
		},
		url: "http://carrier.example.:" + port,
	}
	url := traffic.Serve(http.HandlerFunc(tracker.serveParcel))
	traffic.Send(url, traffic.Load{Path: "/parcel", PerSecond: 60})
}
