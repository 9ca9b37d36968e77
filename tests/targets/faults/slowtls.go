package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/http"
	"time"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
)

func init() {
	registerPeer("vault", serveSecrets)
	register("slowtls", serveCheckouts)
}

// A lateListener begins the handshake of a connection 40 ms late, as an overloaded proxy does.
type lateListener struct{ net.Listener }

func (l lateListener) Accept() (net.Conn, error) {
	connection, err := l.Listener.Accept()
	return &lateConn{Conn: connection}, err
}

type lateConn struct {
	net.Conn
	begun bool
}

func (c *lateConn) Read(buffer []byte) (int, error) {
	if !c.begun {
		c.begun = true
		answerAfter("40ms")
	}
	return c.Conn.Read(buffer)
}

// serveSecrets answers HTTPS requests.
func serveSecrets() string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	harness.Check(err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().AddDate(1, 0, 0)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	harness.Check(err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Check(err)
	config := &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}},
	}
	go http.Serve(tls.NewListener(lateListener{listener}, config), http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			answerAfter(r.URL.Path)
			reply(w, "secret", nil)
		},
	))
	return "https://" + listener.Addr().String()
}

// A checkoutDesk fetches a secret for each request, over a connection of its own: its client keeps
// none.
type checkoutDesk struct {
	vault *http.Client
	url   string
}

//go:noinline
func (d *checkoutDesk) serveCheckout(w http.ResponseWriter, r *http.Request) {
	secret, err := get(d.vault, d.url+"/20ms/secret")
	reply(w, secret, err)
}

func serveCheckouts() {
	desk := &checkoutDesk{
		vault: &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		}},
		url: startPeer("vault"),
	}
	url := traffic.Serve(http.HandlerFunc(desk.serveCheckout))
	traffic.Send(url, traffic.Load{Path: "/checkout", PerSecond: 50})
}
