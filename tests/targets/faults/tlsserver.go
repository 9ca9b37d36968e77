package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"sync/atomic"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
)

// A vault hands out documents over TLS. Encryption is most of its CPU time, which is little.
type vault struct {
	documents [][]byte
	requests  atomic.Int64
}

//go:noinline
func (v *vault) open(number int) []byte { return v.documents[number%len(v.documents)] }

func (v *vault) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var number int
	fmt.Sscanf(r.URL.Path, "/%d", &number)
	w.Write(v.open(number))
	v.requests.Add(1)
}

func newVaultCertificate() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	harness.Check(err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	harness.Check(err)
	return tls.Certificate{Certificate: [][]byte{certificate}, PrivateKey: key}
}

func init() { register("tlsserver", tlsserver) }

func tlsserver() {
	store := &vault{}
	for i := 0; i < 20; i++ {
		store.documents = append(store.documents, bytes.Repeat([]byte{byte(i)}, 100<<10))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Check(err)
	settings := &tls.Config{Certificates: []tls.Certificate{newVaultCertificate()}}
	go http.Serve(tls.NewListener(listener, settings), store)
	traffic.Send("https://"+listener.Addr().String(), traffic.Load{PerSecond: 200})
	harness.Poll(func() bool { return store.requests.Load() > 20 })
}
