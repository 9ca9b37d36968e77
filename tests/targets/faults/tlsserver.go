package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/http"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
)

// A vault hands out documents over TLS. Encryption is most of its CPU time, which is little.
type vault struct{ documents [][]byte }

//go:noinline
func (v *vault) open(number int) []byte { return v.documents[number%len(v.documents)] }

func (v *vault) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Write(v.open(keyOf(r)))
}

func newVaultCertificate() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	harness.Check(err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	harness.Check(err)
	return tls.Certificate{Certificate: [][]byte{certificate}, PrivateKey: key}
}

func init() { register("tlsserver", serveVault) }

func serveVault() {
	store := &vault{}
	for i := 0; i < 20; i++ {
		store.documents = append(store.documents, bytes.Repeat([]byte{byte(i)}, 100<<10))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Check(err)
	settings := &tls.Config{Certificates: []tls.Certificate{newVaultCertificate()}}
	encrypted := tls.NewListener(listener, settings)
	listenUnderLoad(encrypted, "https", store, traffic.Load{PerSecond: 200})
}
