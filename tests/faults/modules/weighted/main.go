// Weighted serves previews. A semaphore lets two requests at once ask the renderer.
package main

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
	"ebpfprof.test/modules/peer"
	"golang.org/x/sync/semaphore"
)

const renderTime = 15 * time.Millisecond

type previews struct {
	slots    *semaphore.Weighted
	renderer string
}

//go:noinline
func (p *previews) render(r *http.Request) (string, error) {
	if err := p.slots.Acquire(r.Context(), 1); err != nil {
		return "", err
	}
	defer p.slots.Release(1)
	answer, err := http.Get(p.renderer)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

//go:noinline
func (p *previews) servePreview(w http.ResponseWriter, r *http.Request) {
	text, err := p.render(r)
	fmt.Fprint(w, text, err)
}

func serveRenderings() string {
	return traffic.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(renderTime)
		fmt.Fprint(w, "preview")
	}))
}

func main() {
	if peer.Run(serveRenderings) {
		return
	}
	service := &previews{slots: semaphore.NewWeighted(2), renderer: peer.Start()}
	traffic.Start(traffic.Serve(http.HandlerFunc(service.servePreview)), 5, 100)
	harness.Ready()
	harness.AwaitEnd()
}
