//go:build go1.24

package main

import (
	"net/http"
	"sync"

	"ebpfprof.test/harness"
)

func allowFrames(server *http.Server) {
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
}

// askInFrames asks by HTTP/2: one connection, several requests at a time.
func askInFrames(address string, count int) {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: transport}
	for i := 0; i < count; i += 2 {
		hold()
		var both sync.WaitGroup
		for j := 0; j < 2; j++ {
			both.Add(1)
			go func() {
				defer both.Done()
				answer, err := client.Get("http://" + address)
				harness.Check(err)
				harness.Check(answer.Body.Close())
			}()
		}
		both.Wait()
		<-let
	}
	transport.CloseIdleConnections()
}
